package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// shownMap is a map as it is shown.
type shownMap struct{ datapath.MapInfo }

func (m shownMap) names() []string { return []string{m.Name} }

func (shownMap) owners() []plan.Service { return nil }

var bpfMaps = noun[shownMap]{
	name: "map", kind: "Map", short: "BPF maps, their entries and their memory", words: "MAP",
	columns: []column[shownMap]{
		{title: "MAP", of: func(m shownMap) any { return m.Name }},
		{title: "TYPE", of: func(m shownMap) any { return m.Type }},
		{title: "KEY B", of: func(m shownMap) any { return m.KeyBytes }},
		{title: "VALUE B", of: func(m shownMap) any { return m.ValueBytes }},
		{title: "ENTRIES", of: func(m shownMap) any { return entriesOf(m) }},
		{title: "MAX", of: func(m shownMap) any { return m.MaxEntries }},
		{title: "FULL", of: func(m shownMap) any { return fullOf(m) }},
		{title: "MEMORY KiB", of: func(m shownMap) any { return (m.Bytes + 1023) / 1024 }},
	},
	read: readMaps,
}

func newMap(e *env) *cobra.Command { return bpfMaps.command(e) }

func readMaps(s *sight, do func(*shownMap) error) error {
	totals, err := s.Totals()
	if err != nil {
		return err
	}
	counts, err := s.CountEntries()
	if err != nil {
		return err
	}
	maps, err := s.Maps(totals, counts)
	for _, m := range maps {
		if err == nil {
			err = do(&shownMap{m})
		}
	}
	return err
}

// entriesOf returns how many entries a map has, nil where they are not counted.
func entriesOf(m shownMap) any {
	if m.Entries == nil {
		return nil
	}
	return *m.Entries
}

// percent is a share of a whole, in percent.
type percent float64

// String returns it as people read it.
func (p percent) String() string { return fmt.Sprintf("%.0f%%", float64(p)) }

// fullOf returns how full a map is, nil where its entries are not counted.
func fullOf(m shownMap) any {
	if m.Entries == nil {
		return nil
	}
	return percent(100 * float64(*m.Entries) / float64(max(m.MaxEntries, 1)))
}

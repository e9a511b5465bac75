package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
)

func newMap(e *env) *cobra.Command {
	return noun("map", "BPF maps, their entries and their memory", &cobra.Command{
		Use:   "list",
		Short: "List the maps, how full they are, and the memory they take",
		Args:  command.NoArgs,
		RunE:  e.inspect(listMaps),
	})
}

func listMaps(r *datapath.Reader, _ []string) (command.Table, error) {
	totals, err := r.Totals()
	if err != nil {
		return command.Table{}, err
	}
	counts, err := r.CountEntries()
	if err != nil {
		return command.Table{}, err
	}
	maps, err := r.Maps(totals, counts)
	if err != nil {
		return command.Table{}, err
	}
	t := command.Table{Header: []string{"MAP", "TYPE", "KEY B", "VALUE B", "ENTRIES", "MAX", "FULL", "MEMORY KiB"}}
	for _, m := range maps {
		entries, full := fillOf(m)
		t.Rows = append(t.Rows, []string{m.Name, m.Type, fmt.Sprint(m.KeyBytes), fmt.Sprint(m.ValueBytes), entries, fmt.Sprint(m.MaxEntries), full, fmt.Sprint((m.Bytes + 1023) / 1024)})
	}
	t.Value = maps
	return t, nil
}

// fillOf returns how many entries a map has, and how full that makes it; "-" where
// they are not counted.
func fillOf(m datapath.MapInfo) (entries, full string) {
	if m.Entries == nil {
		return "-", "-"
	}
	return fmt.Sprint(*m.Entries), fmt.Sprintf("%.0f%%", 100*float64(*m.Entries)/float64(max(m.MaxEntries, 1)))
}

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
)

// shownTable is a table as it is shown.
type shownTable struct {
	Table     string   `json:"table"`
	Slots     uint32   `json:"slots"`
	Frontends []string `json:"frontends"` // that name it
	Backends  []string `json:"backends"`  // slot by slot
}

func newTable(e *env) *cobra.Command {
	return noun("table", "Runs of backends that frontends share", &cobra.Command{
		Use:   "show [TABLE]",
		Short: "Show one table, or all of them",
		Args: func(cmd *cobra.Command, args []string) error {
			return noArgs(cmd, args[min(1, len(args)):]) // beside the table
		},
		RunE: e.inspect(showTables),
	})
}

func showTables(i *datapath.Inspector, args []string) (table, error) {
	all, err := readFrontends(i)
	if err != nil {
		return table{}, err
	}
	c, err := i.Content()
	if err != nil {
		return table{}, err
	}
	out := []shownTable{}
	t := table{header: []string{"TABLE", "FRONTENDS", "BACKENDS"}}
	for _, key := range sortedTables(c) {
		if len(args) == 1 && args[0] != key.String() {
			continue
		}
		s := shownTable{Table: key.String(), Slots: key.Size, Frontends: []string{}, Backends: []string{}}
		for _, f := range all {
			if f.Internal.Table == s.Table || f.External.Table == s.Table {
				s.Frontends = append(s.Frontends, f.Frontend)
			}
		}
		for _, id := range c.Tables[key] {
			s.Backends = append(s.Backends, c.Backends[id].String())
		}
		out = append(out, s)
		t.rows = append(t.rows, tableRows(s)...)
	}
	if len(args) == 1 && len(out) == 0 {
		return table{}, fmt.Errorf("no table is %q: give one as headgate frontend list shows them, such as 0+3", args[0])
	}
	t.value = out
	return t, nil
}

// tableRows puts frontends and backends side by side, one a line.
func tableRows(s shownTable) (rows [][]string) {
	cell := func(list []string, i int) string {
		if i < len(list) {
			return list[i]
		}
		return ""
	}
	backends := withCounts(s.Backends)
	for i := range max(len(s.Frontends), len(backends)) {
		row := []string{"", cell(s.Frontends, i), cell(backends, i)}
		if i == 0 {
			row[0] = s.Table
		}
		rows = append(rows, row)
	}
	return rows
}

// withCounts returns backends in the order in which they come first, each with
// how many slots it has if these are several.
func withCounts(slots []string) (out []string) {
	count := map[string]int{}
	for _, b := range slots {
		if count[b]++; count[b] == 1 {
			out = append(out, b)
		}
	}
	for i, b := range out {
		if count[b] > 1 {
			out[i] = fmt.Sprintf("%s ×%d", b, count[b])
		}
	}
	return out
}

func newMap(e *env) *cobra.Command {
	return noun("map", "The BPF maps themselves", &cobra.Command{
		Use:   "list",
		Short: "List the maps, how full they are, and the memory they take",
		Args:  noArgs,
		RunE:  e.inspect(listMaps),
	})
}

func listMaps(i *datapath.Inspector, _ []string) (table, error) {
	maps, err := i.Maps()
	if err != nil {
		return table{}, err
	}
	t := table{header: []string{"MAP", "TYPE", "KEY", "VALUE", "ENTRIES", "MAX", "BYTES"}, value: slices.Clip(maps)}
	for _, m := range maps {
		t.rows = append(t.rows, strings.Fields(fmt.Sprintln(m.Name, m.Type, m.KeyBytes, m.ValueBytes, m.Entries, m.MaxEntries, m.Bytes)))
	}
	return t, nil
}

package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// shownTable is a table as it is shown.
type shownTable struct {
	Table     string   `json:"table"`
	Slots     uint32   `json:"slots"`
	Frontends []string `json:"frontends"` // that name it
	Backends  []string `json:"backends"`  // slot by slot
}

func newTable(e *env) *cobra.Command {
	show := &cobra.Command{
		Use:   "show [TABLE]",
		Short: "Show one table, or all of them",
		Args: func(cmd *cobra.Command, args []string) error {
			return command.NoArgs(cmd, args[min(1, len(args)):]) // beside the table
		},
		RunE: e.inspect(showTables),
	}
	cmd := noun("table", "Tables of backends that frontends share", show)
	cmd.Long = `A table is a run of slots of the slots map, each of which names a backend. Frontends with
the same backends share one. It is called by its first slot and how many there are: 0+3 is
the slots 0, 1 and 2. Where its backends have consecutive IDs it needs no slots and is called
by the first ID: id7+3 is the backends 7, 8 and 9. A backend that a table names more than once, because of its weight or
a hash, is shown with how often: ×7.`
	show.Long = cmd.Long
	return cmd
}

func showTables(r *datapath.Reader, args []string) (command.Table, error) {
	c, err := r.Content()
	if err != nil {
		return command.Table{}, err
	}
	named := namedBy(c)
	out := []shownTable{}
	t := command.Table{Header: []string{"TABLE", "FRONTENDS", "BACKENDS"}}
	for _, key := range sortedTables(c) {
		if len(args) == 1 && args[0] != key.String() {
			continue
		}
		s := shownTable{Table: key.String(), Slots: key.Size, Frontends: append([]string{}, named[key]...), Backends: []string{}}
		for _, id := range c.Tables[key] {
			s.Backends = append(s.Backends, c.Backends[id].String())
		}
		out = append(out, s)
		t.Rows = append(t.Rows, tableRows(s)...)
	}
	if len(args) == 1 && len(out) == 0 {
		return command.Table{}, fmt.Errorf("no table is %s: headgate table show lists them all", lb.Quote(args[0]))
	}
	t.Value = out
	return t, nil
}

// namedBy returns the frontends that name each table, sorted.
func namedBy(c plan.Content) map[plan.Table][]string {
	out := map[plan.Table][]string{}
	for _, key := range slices.SortedFunc(maps.Keys(c.Frontends), lb.AddrPort.Compare) {
		seen := map[plan.Table]bool{} // views share tables
		for _, t := range c.Frontends[key].Tables() {
			if !seen[t] {
				seen[t] = true
				out[t] = append(out[t], key.String())
			}
		}
	}
	return out
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

package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// shownTable is a table as it is shown.
type shownTable struct {
	services  []plan.Service
	Table     string             `json:"table"`
	Slots     uint32             `json:"slots"`
	Frontends texts[lb.AddrPort] `json:"frontends"` // that name it
	Backends  texts[lb.AddrPort] `json:"backends"`  // slot by slot
}

func (t shownTable) names() []string { return []string{t.Table} }

func (t shownTable) owners() []plan.Service { return t.services }

var tables = noun[shownTable]{
	name: "table", kind: "Table", short: "tables of backends that frontends share",
	long: `A table is a run of slots of the slots map, each of which names a backend. Frontends with
the same backends share one. It is called by its first slot and how many there are: 0+3 is
the slots 0, 1 and 2. Where its backends have consecutive IDs it needs no slots and is called
by the first ID: id7+3 is the backends 7, 8 and 9. A backend that a table names more than once, because of its weight or
a hash, is shown with how often: ×7.`,
	words: "{TABLE | [NAMESPACE/]SERVICE[:PORT]}",
	columns: []column[shownTable]{
		{title: "TABLE", of: func(t shownTable) any { return t.Table }},
		{title: "SLOTS", of: func(t shownTable) any { return t.Slots }, wide: true},
		{title: "FRONTENDS", of: func(t shownTable) any { return t.Frontends.texts() }},
		{title: "BACKENDS", of: func(t shownTable) any { return withCounts(t.Backends) }},
	},
	read: readTables, namespaced: true,
}

// newTable returns the noun. As before there was list, show alone shows all.
func newTable(e *env) *cobra.Command {
	cmd := tables.command(e)
	show, _, err := cmd.Find([]string{"show"})
	if err != nil {
		return cmd
	}
	one := show.RunE
	show.Args = atMostOne
	show.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.RunE(c, args)
		}
		return one(c, args)
	}
	return cmd
}

func readTables(s *sight, do func(*shownTable) error) error {
	all, err := s.namedTables()
	if err != nil {
		return err
	}
	keys := slices.SortedFunc(maps.Keys(all), plan.Table.Compare)
	for _, key := range keys {
		if _, err := s.Slots(key); err != nil {
			return err
		}
	}
	for _, key := range keys { // they may be as many as backends, and larger
		t, err := s.shownTable(key, all[key])
		if err != nil {
			return err
		}
		if err := do(&t); err != nil {
			return err
		}
	}
	return nil
}

// shownTable reads the backends of a table.
func (s *sight) shownTable(key plan.Table, named naming) (shownTable, error) {
	t := shownTable{services: named.services, Table: key.String(), Slots: key.Size, Frontends: named.frontends}
	ids, err := s.Slots(key)
	slices.SortFunc(t.Frontends, lb.AddrPort.Compare)
	t.Backends = make(texts[lb.AddrPort], len(ids))
	for i, id := range ids {
		t.Backends[i] = s.Backend(id).At
	}
	return t, err
}

// naming is the frontends that name a table, and the Service ports that they are of.
type naming struct {
	frontends []lb.AddrPort
	services  []plan.Service
}

// namedTables returns the tables that frontends name.
func (s *sight) namedTables() (map[plan.Table]naming, error) {
	out := map[plan.Table]naming{}
	err := s.Frontends(func(at lb.AddrPort, f plan.Frontend) error {
		service, err := s.Service(f.Service)
		if err != nil {
			return err
		}
		named := f.Tables()
		for i, t := range named { // views share tables
			if t.Size > 0 && !slices.Contains(named[:i], t) {
				n := out[t]
				out[t] = naming{append(n.frontends, at), append(n.services, service)}
			}
		}
		return nil
	})
	return out, err
}

// withCounts returns backends in the order in which they come first, each with
// how many slots it has if these are several.
func withCounts(slots []lb.AddrPort) (out []string) {
	count, order := map[lb.AddrPort]int{}, []lb.AddrPort(nil)
	for _, b := range slots {
		if count[b]++; count[b] == 1 {
			order = append(order, b)
		}
	}
	for _, b := range order {
		text := b.String()
		if n := count[b]; n > 1 {
			text = fmt.Sprintf("%s ×%d", text, n)
		}
		out = append(out, text)
	}
	return out
}

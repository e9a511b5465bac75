package cli

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// frontend is a frontend as it is shown.
type frontend struct {
	Frontend string `json:"frontend"`
	ID       uint32 `json:"id"`
	Kind     string `json:"kind"`
	Service  string `json:"service"`
	// Algorithm says how a client gets one of the backends.
	Algorithm string            `json:"algorithm"`
	Internal  view              `json:"internal"` // for clients on this node
	External  view              `json:"external"` // for clients elsewhere
	Drops     map[string]uint64 `json:"drops,omitempty"`
}

// view is a class of clients' way to backends.
type view struct {
	Table    string   `json:"table"` // "offset+size", "none" or "no-local"
	Backends []string `json:"backends"`
	Why      string   `json:"why,omitempty"`
}

func newFrontend(e *env) *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List all frontends",
		Args:  noArgs,
		RunE:  e.inspect(listFrontends),
	}
	show := &cobra.Command{
		Use:   "show {ADDRESS:PORT[/PROTOCOL] | NAMESPACE/SERVICE}",
		Short: "Show the frontends at an address or of a Service, with their backends",
		Args:  oneFrontend,
		RunE:  e.inspect(showFrontend),
	}
	return noun("frontend", "Addresses that clients use", list, show)
}

// oneFrontend wants one argument.
func oneFrontend(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments: name one frontend, by address and port, or by namespace/service", len(args))
	}
	return nil
}

func listFrontends(i *datapath.Inspector, _ []string) (table, error) {
	all, err := readFrontends(i)
	if err != nil {
		return table{}, err
	}
	t := table{header: []string{"FRONTEND", "KIND", "SERVICE", "ALGORITHM", "INTERNAL", "EXTERNAL", "BACKENDS"}, value: all}
	for _, f := range all {
		t.rows = append(t.rows, []string{f.Frontend, f.Kind, f.Service, f.Algorithm, f.Internal.Table, f.External.Table, fmt.Sprint(len(f.Internal.Backends))})
	}
	return t, nil
}

// readFrontends returns every frontend, sorted.
func readFrontends(i *datapath.Inspector) ([]frontend, error) {
	c, err := i.Content()
	if err != nil {
		return nil, err
	}
	drops, err := i.Drops()
	if err != nil {
		return nil, err
	}
	out := []frontend{}
	for _, key := range slices.SortedFunc(maps.Keys(c.Frontends), lb.AddrPort.Compare) {
		f := c.Frontends[key]
		out = append(out, frontend{
			Frontend: key.String(), ID: f.ID, Kind: f.Kind.String(), Service: c.Services[f.Service].String(),
			Algorithm: f.Algorithm().String(),
			Internal:  readView(c, f.Internal), External: readView(c, f.External), Drops: drops[f.Service],
		})
	}
	return out, nil
}

func readView(c plan.Content, v plan.View) view {
	out := view{Table: v.String(), Backends: []string{}, Why: v.Why.String()}
	seen := map[uint32]bool{} // weights and hashes make a table name them again and again
	for _, id := range c.Tables[v.Table] {
		if !seen[id] {
			seen[id] = true
			out.Backends = append(out.Backends, c.Backends[id].String())
		}
	}
	return out
}

func showFrontend(i *datapath.Inspector, args []string) (table, error) {
	all, err := readFrontends(i)
	if err != nil {
		return table{}, err
	}
	found := slices.DeleteFunc(all, func(f frontend) bool { return !f.isMeant(args[0]) })
	if len(found) == 0 {
		return table{}, fmt.Errorf("no frontend is %q: give an address with port, or namespace/service, as headgate frontend list shows them", args[0])
	}
	t := table{value: found}
	for n, f := range found {
		if n > 0 {
			t.rows = append(t.rows, []string{""})
		}
		t.rows = append(t.rows,
			[]string{"frontend", f.Frontend},
			[]string{"kind", f.Kind},
			[]string{"service", f.Service},
			[]string{"algorithm", f.Algorithm},
			[]string{"internal", f.Internal.Table, strings.Join(f.Internal.Backends, " ")},
			[]string{"external", f.External.Table, strings.Join(f.External.Backends, " ")},
			[]string{"internal why", f.Internal.Why},
			[]string{"external why", f.External.Why})
		t.rows = append(t.rows, counts("drop", f.Drops)...)
	}
	return t, nil
}

// isMeant says whether a word of the command line means the frontend: its
// address with or without protocol, or the name of its Service with or without
// port.
func (f frontend) isMeant(word string) bool {
	if word == f.Frontend || word == f.Service {
		return true
	}
	address := f.Frontend[:strings.LastIndex(f.Frontend, "/")]
	if at, err := netip.ParseAddrPort(word); err == nil {
		return at.String() == address
	}
	service := f.Service[:strings.LastIndex(f.Service, "/")]
	name, _, _ := strings.Cut(service, ":")
	return word == service || word == name
}

// backend is a backend as it is shown.
type backend struct {
	ID      uint32   `json:"id"`
	Backend string   `json:"backend"`
	Tables  []string `json:"tables"` // that name it
	datapath.Load
}

func newBackend(e *env) *cobra.Command {
	return noun("backend", "Addresses that traffic goes to", &cobra.Command{
		Use:   "list",
		Short: "List all backends",
		Args:  noArgs,
		RunE:  e.inspect(listBackends),
	})
}

func listBackends(i *datapath.Inspector, _ []string) (table, error) {
	c, err := i.Content()
	if err != nil {
		return table{}, err
	}
	named := map[uint32][]string{}
	for _, t := range sortedTables(c) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(c.Tables[t]))) {
			named[id] = append(named[id], t.String())
		}
	}
	all := []backend{}
	loads := i.Loads()
	t := table{header: []string{"ID", "BACKEND", "IN FLIGHT", "ANSWER", "HEALTH", "TABLES"}}
	for _, id := range slices.Sorted(maps.Keys(c.Backends)) {
		b := backend{ID: id, Backend: c.Backends[id].String(), Tables: append([]string{}, named[id]...), Load: loads[id]}
		all = append(all, b)
		t.rows = append(t.rows, []string{fmt.Sprint(id), b.Backend, fmt.Sprint(b.InFlight), answer(b.Load), health(b.Load), strings.Join(b.Tables, " ")})
	}
	t.value = all
	return t, nil
}

// answer is the answer time of a backend, "-" where nobody measures it.
func answer(l datapath.Load) string {
	if l.Answer == 0 {
		return "-"
	}
	return l.Answer.String()
}

// health says whether a backend takes connections, as far as this node knows.
func health(l datapath.Load) string {
	switch {
	case l.Suspect > 0:
		return "suspect for " + l.Suspect.Round(time.Second).String()
	case l.Failures > 0:
		return fmt.Sprintf("%d failed", l.Failures)
	default:
		return "ok"
	}
}

// sortedTables returns the tables by offset.
func sortedTables(c plan.Content) []plan.Table {
	return slices.SortedFunc(maps.Keys(c.Tables), func(a, b plan.Table) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size))
	})
}

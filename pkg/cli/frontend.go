package cli

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// frontend is a frontend as it is shown.
type frontend struct {
	at       lb.AddrPort
	Frontend string `json:"frontend"`
	Kind     string `json:"kind"`
	Service  string `json:"service"`
	// Algorithm says how a client gets one of the backends.
	Algorithm string            `json:"algorithm"`
	Policy    string            `json:"policy,omitempty"` // what is not as usual
	Views     []view            `json:"views"`            // by the indexes of lb; fallbacks that are empty are left out
	Drops     map[string]uint64 `json:"drops,omitempty"`
}

// view is a class of clients' way to backends, or what stands in for it.
type view struct {
	View     string   `json:"view"`  // such as "internal"
	Table    string   `json:"table"` // "offset+size", "none" or "no-local"
	Backends []string `json:"backends"`
	Why      string   `json:"why,omitempty"`
}

func newFrontend(e *env) *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List all frontends",
		Args:  command.NoArgs,
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

func listFrontends(r *datapath.Reader, _ []string) (command.Table, error) {
	all, err := readFrontends(r, func(plan.Frontend) bool { return true })
	if err != nil {
		return command.Table{}, err
	}
	t := command.Table{Header: []string{"FRONTEND", "KIND", "SERVICE", "ALGORITHM", "INTERNAL", "EXTERNAL", "BACKENDS"}, Value: all}
	for _, f := range all {
		t.Rows = append(t.Rows, []string{f.Frontend, f.Kind, f.Service, f.Algorithm, f.Views[lb.Internal].Table, f.Views[lb.External].Table, fmt.Sprint(len(f.Views[lb.Internal].Backends))})
	}
	return t, nil
}

// readFrontends returns the frontends that are wanted, sorted.
func readFrontends(r *datapath.Reader, wanted func(plan.Frontend) bool) ([]frontend, error) {
	out := []frontend{}
	err := r.Frontends(func(at lb.AddrPort, f plan.Frontend) error {
		if !wanted(f) {
			return nil
		}
		one, err := readFrontend(r, at, f)
		out = append(out, one)
		return err
	})
	slices.SortFunc(out, func(a, b frontend) int { return a.at.Compare(b.at) })
	return out, err
}

func readFrontend(r *datapath.Reader, at lb.AddrPort, f plan.Frontend) (frontend, error) {
	out := frontend{at: at, Frontend: at.String(), Kind: f.Kind.String(), Algorithm: f.Algorithm().String(), Policy: f.Words()}
	service, err := r.Service(f.Service)
	if err != nil {
		return out, err
	}
	out.Service = service.String()
	if out.Drops, err = r.Drops(f.Service); err != nil {
		return out, err
	}
	for i, v := range f.Views {
		if i >= lb.FallbackZone && v.Table.Size == 0 {
			continue
		}
		shown, err := readView(r, lb.ViewName(i), v)
		if err != nil {
			return out, fmt.Errorf("frontend %s: %w", at, err)
		}
		out.Views = append(out.Views, shown)
	}
	return out, nil
}

func readView(r *datapath.Reader, name string, v plan.View) (view, error) {
	out := view{View: name, Table: v.String(), Backends: []string{}, Why: v.Why.String()}
	ids, err := r.Slots(v.Table)
	seen := map[uint32]bool{} // weights and hashes make a table name them again and again
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out.Backends = append(out.Backends, r.Backend(id).At.String())
		}
	}
	return out, err
}

// findFrontends returns the frontends that a word means: one by its address, with or
// without protocol, or those of a Service, with or without port.
func findFrontends(r *datapath.Reader, word string) ([]frontend, error) {
	if addresses := parseFrontend(word); len(addresses) > 0 {
		return lookUp(r, addresses)
	}
	services := map[uint32]bool{}
	for id := range r.Services() {
		service, err := r.Service(id)
		if err != nil {
			return nil, err
		}
		if isService(word, service) {
			services[id] = true
		}
	}
	if len(services) == 0 {
		return nil, nil
	}
	return readFrontends(r, func(f plan.Frontend) bool { return services[f.Service] })
}

// lookUp returns the frontends at these addresses.
func lookUp(r *datapath.Reader, addresses []lb.AddrPort) (out []frontend, err error) {
	for _, at := range addresses {
		f, found := r.Frontend(at)
		if !found {
			continue
		}
		one, err := readFrontend(r, at, f)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// parseFrontend returns the addresses that a word such as 10.96.0.1:80 or
// 10.96.0.1:80/TCP stands for, none where it is no address.
func parseFrontend(word string) (out []lb.AddrPort) {
	address, protocol, _ := strings.Cut(word, "/")
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil
	}
	for _, p := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
		if protocol == "" || protocol == p.String() {
			out = append(out, lb.AddrPort{Addr: at.Addr().Unmap(), Port: at.Port(), Protocol: p})
		}
	}
	return out
}

// isService says whether a word means a Service port: namespace/name, with or without
// port and protocol.
func isService(word string, s plan.Service) bool {
	full := s.String()
	return word == full || word == s.ServiceName.String() || word == strings.TrimSuffix(full, "/"+s.Protocol.String())
}

func showFrontend(r *datapath.Reader, args []string) (command.Table, error) {
	found, err := findFrontends(r, args[0])
	if err != nil {
		return command.Table{}, err
	}
	if len(found) == 0 {
		return command.Table{}, fmt.Errorf("no frontend is %s: give an address with port, or namespace/service, as headgate frontend list shows them", lb.Quote(args[0]))
	}
	t := command.Table{Value: found}
	for n, f := range found {
		if n > 0 {
			t.Rows = append(t.Rows, []string{""})
		}
		t.Rows = append(t.Rows,
			[]string{"frontend", f.Frontend},
			[]string{"kind", f.Kind},
			[]string{"service", f.Service},
			[]string{"algorithm", f.Algorithm})
		if f.Policy != "" {
			t.Rows = append(t.Rows, []string{"policy", f.Policy})
		}
		for _, v := range f.Views {
			t.Rows = append(t.Rows, viewRows(v)...)
		}
		for _, v := range f.Views {
			if v.Why != "" {
				t.Rows = append(t.Rows, []string{v.View + " why", v.Why})
			}
		}
		t.Rows = append(t.Rows, counts("drop", f.Drops)...)
	}
	return t, nil
}

// backendsPerLine is how many backends of a view stand on one line.
const backendsPerLine = 4

// viewRows returns a view with its backends, over as many lines as it takes.
func viewRows(v view) (rows [][]string) {
	for some := range slices.Chunk(v.Backends, backendsPerLine) {
		rows = append(rows, []string{"", "", strings.Join(some, " ")})
	}
	if len(rows) == 0 {
		rows = [][]string{{"", "", ""}}
	}
	rows[0][0], rows[0][1] = v.View, v.Table
	return rows
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
		Args:  command.NoArgs,
		RunE:  e.inspect(listBackends),
	})
}

func listBackends(r *datapath.Reader, _ []string) (command.Table, error) {
	c, err := r.Content()
	if err != nil {
		return command.Table{}, err
	}
	named := map[uint32][]string{}
	for _, t := range sortedTables(c) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(c.Tables[t]))) {
			named[id] = append(named[id], t.String())
		}
	}
	all := []backend{}
	t := command.Table{Header: []string{"ID", "BACKEND", "IN FLIGHT", "RESPONSE", "HEALTH", "TABLES"}}
	for id, at := range r.Backends() {
		b := backend{ID: id, Backend: at.At.String(), Tables: append([]string{}, named[id]...), Load: at.Load}
		all = append(all, b)
		t.Rows = append(t.Rows, []string{fmt.Sprint(id), b.Backend, fmt.Sprint(b.InFlight), response(b.Load), health(b.Load), strings.Join(b.Tables, " ")})
	}
	t.Value = all
	return t, nil
}

// response is the response time of a backend, "-" where nobody measures it.
func response(l datapath.Load) string {
	if l.Response == 0 {
		return "-"
	}
	return l.Response.String()
}

// health says whether a backend takes connections, as far as this node knows.
func health(l datapath.Load) string {
	switch {
	case l.Ejected > 0:
		return "ejected for " + l.Ejected.Round(time.Second).String()
	case l.EjectedByOne > 0:
		return "avoided for " + l.EjectedByOne.Round(time.Second).String() + " by the client that failed last"
	case l.Failures > 0:
		return fmt.Sprintf("%d failed", l.Failures)
	default:
		return "ok"
	}
}

// sortedTables returns the tables by offset.
func sortedTables(c plan.Content) []plan.Table {
	return slices.SortedFunc(maps.Keys(c.Tables), plan.Table.Compare)
}

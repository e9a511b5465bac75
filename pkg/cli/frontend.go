package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// frontend is a frontend as it is shown.
type frontend struct {
	at       lb.AddrPort
	service  plan.Service
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
	View     string             `json:"view"`  // such as "internal"
	Table    string             `json:"table"` // "offset+size", "none" or "no-local"
	Backends texts[lb.AddrPort] `json:"backends"`
	Why      string             `json:"why,omitempty"`
}

func (f frontend) names() []string { return addressNames(f.at) }

func (f frontend) owners() []plan.Service { return []plan.Service{f.service} }

var frontends = noun[frontend]{
	name: "frontend", kind: "Frontend", short: "addresses that clients use",
	words: "{ADDRESS[:PORT[/PROTOCOL]] | [NAMESPACE/]SERVICE[:PORT]}",
	columns: []column[frontend]{
		{title: "FRONTEND", of: func(f frontend) any { return f.Frontend }},
		{title: "KIND", of: func(f frontend) any { return f.Kind }},
		{title: "SERVICE", of: func(f frontend) any { return f.Service }},
		{title: "ALGORITHM", of: func(f frontend) any { return f.Algorithm }},
		{title: "INTERNAL", of: func(f frontend) any { return f.Views[lb.Internal].Table }},
		{title: "EXTERNAL", of: func(f frontend) any { return f.Views[lb.External].Table }},
		{title: "BACKENDS", of: func(f frontend) any { return len(f.Views[lb.Internal].Backends) }},
		{title: "POLICY", of: func(f frontend) any { return f.Policy }, wide: true},
	},
	read: readFrontends, compare: compareFrontends, show: showFrontend, namespaced: true,
}

func newFrontend(e *env) *cobra.Command { return frontends.command(e) }

func compareFrontends(a, b frontend) int { return a.at.Compare(b.at) }

// readFrontends reads the frontends that are wanted. The others cost little.
func readFrontends(s *sight, do func(*frontend) error) error {
	services := map[uint32]plan.Service{}
	return s.Frontends(func(at lb.AddrPort, f plan.Frontend) (err error) {
		service, ok := services[f.Service]
		if !ok {
			if service, err = s.Service(f.Service); err != nil {
				return err
			}
			services[f.Service] = service
		}
		one := frontend{at: at, service: service}
		if !s.wanted.wants(one) {
			return nil
		}
		if one, err = readFrontend(s.Reader, one, f); err != nil {
			return err
		}
		return do(&one)
	})
}

func readFrontend(r *datapath.Reader, out frontend, f plan.Frontend) (frontend, error) {
	out.Frontend, out.Kind, out.Service = out.at.String(), f.Kind.String(), out.service.String()
	out.Algorithm, out.Policy = f.Algorithm().String(), f.Words()
	var err error
	if out.Drops, err = r.Drops(f.Service); err != nil {
		return out, err
	}
	out.Views = make([]view, 0, lb.FallbackZone)
	for i, v := range f.Views {
		if i >= lb.FallbackZone && v.Table.Size == 0 {
			continue
		}
		shown, err := readView(r, lb.ViewName(i), v)
		if err != nil {
			return out, err
		}
		out.Views = append(out.Views, shown)
	}
	return out, nil
}

// fewBackends is how many most views have at the most.
const fewBackends = 8

func readView(r *datapath.Reader, name string, v plan.View) (view, error) {
	out := view{View: name, Table: v.String(), Why: v.Why.String()}
	ids, err := r.Slots(v.Table)
	out.Backends = make(texts[lb.AddrPort], 0, min(len(ids), fewBackends))
	seen := map[uint32]bool{} // weights and hashes make a table name them again and again
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out.Backends = append(out.Backends, r.Backend(id).At)
		}
	}
	return out, err
}

func showFrontend(f frontend) (rows [][]string) {
	rows = [][]string{{"frontend", f.Frontend}, {"kind", f.Kind}, {"service", f.Service}, {"algorithm", f.Algorithm}}
	if f.Policy != "" {
		rows = append(rows, []string{"policy", f.Policy})
	}
	for _, v := range f.Views {
		rows = append(rows, viewRows(v)...)
	}
	for _, v := range f.Views {
		if v.Why != "" {
			rows = append(rows, []string{v.View + " why", v.Why})
		}
	}
	return append(rows, counts("drop of the Service port", f.Drops)...)
}

// backendsPerLine is how many backends of a view stand on one line.
const backendsPerLine = 4

// viewRows returns a view with its backends, over as many lines as it takes.
func viewRows(v view) (rows [][]string) {
	for some := range slices.Chunk(v.Backends.texts(), backendsPerLine) {
		rows = append(rows, []string{"", "", strings.Join(some, " ")})
	}
	if len(rows) == 0 {
		rows = [][]string{{"", "", ""}}
	}
	rows[0][0], rows[0][1] = v.View, v.Table
	return rows
}

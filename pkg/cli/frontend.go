package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
	backends int                // how many, also where they are not read
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
		{title: "BACKENDS", of: func(f frontend) any { return f.Views[lb.Internal].backends }},
		{title: "POLICY", of: func(f frontend) any { return f.Policy }, wide: true},
	},
	read: readFrontends, show: showFrontend, namespaced: true,
}

func newFrontend(e *env) *cobra.Command { return frontends.command(e) }

// foundFrontend is one of which no more is read yet.
type foundFrontend struct {
	at      lb.AddrPort
	service plan.Service
	holds   plan.Frontend
}

// readFrontends reads the frontends that are wanted, in order. The others cost little, and so do those of which
// nobody has asked for the next yet.
func readFrontends(s *sight, do func(*frontend) error) error {
	var all []*foundFrontend
	err := s.Frontends(func(at lb.AddrPort, f plan.Frontend) error {
		service, err := s.Service(f.Service)
		if err == nil && s.wanted.wants(frontend{at: at, service: service}) {
			all = append(all, &foundFrontend{at, service, f})
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *foundFrontend) int { return a.at.Compare(b.at) })
	for i, found := range all {
		one, err := found.read(s)
		if err != nil {
			return err
		}
		if err := do(&one); err != nil {
			return err
		}
		all[i] = nil
	}
	return nil
}

func (f *foundFrontend) read(s *sight) (out frontend, err error) {
	out = frontend{
		at: f.at, service: f.service, Frontend: f.at.String(), Kind: f.holds.Kind.String(), Service: f.service.String(),
		Algorithm: f.holds.Algorithm().String(), Policy: f.holds.Words(), Views: make([]view, 0, lb.FallbackZone),
	}
	if out.Drops, err = s.Drops(f.holds.Service); err != nil {
		return out, err
	}
	for i, v := range f.holds.Views {
		if i >= lb.FallbackZone && v.Table.Size == 0 {
			continue
		}
		shown, err := readView(s, lb.ViewName(i), v)
		if err != nil {
			return out, err
		}
		out.Views = append(out.Views, shown)
	}
	return out, nil
}

func readView(s *sight, name string, v plan.View) (view, error) {
	out := view{View: name, Table: v.String(), Why: v.Why.String(), Backends: texts[lb.AddrPort]{}}
	ids, err := s.Slots(v.Table)
	seen := map[uint32]bool{} // weights and hashes make a table name them again and again
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		if s.full {
			out.Backends = append(out.Backends, s.Backend(id).At)
		}
	}
	out.backends = len(seen)
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

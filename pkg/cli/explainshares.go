package cli

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// explainedShare is a backend, and how many of the clients it gets.
type explainedShare struct {
	at      lb.AddrPort
	Backend string   `json:"backend"`
	Percent *float64 `json:"percent,omitempty"` // nil where the algorithm goes by what is measured, and of one that stands in
	// Now is which share of the connections of this client it gets as things are, of those that the program was given
	// for it; nil where none was: with session affinity, and by load.
	Now *float64 `json:"nowPercent,omitempty"`
	// StandsIn says that it gets something only where those that are preferred are avoided.
	StandsIn bool   `json:"standsIn,omitempty"`
	Health   string `json:"health"`
	// Of the EndpointSlice, as far as an agent says it.
	Pod  string `json:"pod,omitempty"`
	Node string `json:"node,omitempty"`
	Zone string `json:"zone,omitempty"`
	// Tried is what became of a connection, where that is asked for.
	Tried string `json:"tried,omitempty"`
}

// shares are which parts of the clients backends get.
type shares struct {
	order []uint32 // backends, as they come first
	part  map[uint32]float64
}

// add gives a part of the clients to the slots of a table, equal ones.
func (h *shares) add(slots []uint32, part float64) {
	count := map[uint32]int{}
	for _, id := range slots {
		count[id]++
	}
	for _, id := range slots {
		n := count[id]
		if n == 0 {
			continue // it was told of
		}
		count[id] = 0
		if _, known := h.part[id]; !known {
			h.order = append(h.order, id)
		}
		h.part[id] += part * float64(n) / float64(len(slots))
	}
}

// readShares reads the backends that a client may get by a view, and which share of the clients each gets: that
// of the slots which name it, unless the algorithm compares backends. Those that only stand in come last.
func (x *explanation) readShares(s *sight, f plan.Frontend, index int) error {
	v, all := f.Views[index], shares{part: map[uint32]float64{}}
	x.byLoad = v.Algorithm.Compares() || v.Weighted
	ids, err := s.Slots(v.Table)
	if err != nil {
		return err
	}
	spilled := 0.0
	if v.FallsBack {
		spilled = float64(f.Spill) / (1 << 32)
	}
	all.add(ids, 1-spilled)
	for i := lb.FallbackZone; v.FallsBack && i < lb.NumViews; i++ {
		if ids, err = s.Slots(f.Views[i].Table); err != nil {
			return err
		}
		all.add(ids, map[bool]float64{true: spilled}[i == lb.FallbackAll])
	}
	for _, id := range all.order {
		b, part := s.Backend(id), all.part[id]
		share := explainedShare{at: b.At, Backend: b.At.String(), Health: health(b.Load), StandsIn: part == 0}
		if part > 0 && !x.byLoad {
			share.Percent = new(100 * part)
		}
		x.Backends = append(x.Backends, share)
	}
	service, err := s.Service(f.Service)
	if err != nil {
		return err
	}
	x.describe(s.env, service.ServiceName)
	return nil
}

// fewAddresses is how many are asked for by name: they stand in one line of a request.
const fewAddresses = 200

// describe takes what the agent says of the backends of a Service.
func (x *explanation) describe(e *env, service lb.ServiceName) {
	var words []string
	for _, b := range x.Backends[:min(len(x.Backends), fewAddresses+1)] {
		words = append(words, b.at.Addr.String())
	}
	if len(words) == 0 {
		return
	}
	if len(words) > fewAddresses {
		words = nil
	}
	said, err := e.place().AskBackends(e.asking(), words...)
	e.complain(err, "Pods, nodes and zones of backends are unknown")
	for i := range x.Backends {
		if d := said.Of(x.Backends[i].at, service); d != nil {
			x.Backends[i].Pod, x.Backends[i].Node, x.Backends[i].Zone = podName(d), d.Node, d.Zone
		}
	}
}

// tries are how many more connections of the client a program is given, to see which share each backend gets now. A
// retry of one that is ejected, of which there is at most one meanwhile, is half a percent of them.
const tries = 200

// tryShares has a program decide about them. With session affinity all of them go where the first one does, and by load
// they go elsewhere than connections that end meanwhile.
func (x *explanation) tryShares(decide func(i int) (datapath.Decision, error)) error {
	if x.Affinity != "" || x.byLoad || len(x.Backends) < 2 {
		return nil
	}
	got := map[netip.AddrPort]int{}
	for i := range tries {
		d, err := decide(i)
		if err != nil {
			return err
		}
		got[d.To]++
	}
	for i := range x.Backends {
		b := &x.Backends[i]
		b.Now = new(100 * float64(got[netip.AddrPortFrom(b.at.Addr, b.at.Port)]) / tries)
	}
	return nil
}

// unlikely is how many standard deviations chance does not make.
const unlikely = 6

// tellsNow says whether the share now is worth a word: it differs from that as a rule, by more than chance makes of
// so few connections, or the backend is not well.
func (b explainedShare) tellsNow() bool {
	if b.Now == nil || b.Health != healthy {
		return b.Now != nil
	}
	usual := 0.0
	if b.Percent != nil {
		usual = *b.Percent
	}
	return math.Abs(*b.Now-usual) > unlikely*math.Sqrt(usual*(100-usual)/tries)
}

// String is the line of the story about the backend.
func (b explainedShare) String() string {
	share := "by load"
	switch {
	case b.Percent != nil:
		share = fmt.Sprintf("%.1f%%", *b.Percent)
	case b.StandsIn:
		share = "instead"
	}
	line := fmt.Sprintf("%-7s %s  %s", share, b.Backend, b.Health)
	if b.tellsNow() {
		line += fmt.Sprintf(", now %.0f%%", *b.Now)
	}
	if place := placeOf(b.Pod, b.Node, b.Zone); place != "" {
		line += "  (" + place + ")"
	}
	if b.Tried != "" {
		line += "  " + b.Tried
	}
	return line
}

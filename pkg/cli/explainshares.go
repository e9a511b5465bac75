package cli

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

// explainedShare is a backend, and how many of the clients it gets.
type explainedShare struct {
	at      lb.AddrPort
	carried bool     // to its node, which has the route
	Backend string   `json:"backend"`
	Percent *float64 `json:"percent,omitempty"` // nil where the algorithm goes by what is measured, and of one that stands in
	// Now is which share of the connections of this client it gets as things are, of those that the program was given
	// for it; nil where none was: with session affinity, and by load.
	Now *float64 `json:"nowPercent,omitempty"`
	// RetryDue says that clients avoid it, but for the next connection that is meant for it: that tries whether it is well again.
	RetryDue bool `json:"retryDue,omitempty"`
	// Unused says why it gets nothing: it is not in the table of these clients.
	Unused string `json:"unused,omitempty"`
	// NoRoute says that where the client is the kernel has no way to it.
	NoRoute bool `json:"noRoute,omitempty"`
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
	x.node, x.carried = s.Node(), index == lb.External && f.Carried
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
		share.carried = x.carried && s.CarriesTo(id)
		if part > 0 && !x.byLoad {
			share.Percent = new(100 * part)
		}
		x.Backends = append(x.Backends, share)
	}
	x.describe(s.env, index)
	x.findRoutes()
	return nil
}

// describe takes what the agent says of the backends of the Service, also of those that these clients do not get.
func (x *explanation) describe(e *env, index int) {
	said, err := e.place().AskBackends(e.asking(), x.port.ServiceName.String())
	if x.asked = err == nil; len(x.Backends) > 0 {
		e.complain(err, "Pods, nodes and zones of backends are unknown")
	}
	drained, _ := agent.ReadDrained(e.state) // without, weights are named
	known := map[lb.AddrPort]int{}
	for i, b := range x.Backends {
		known[b.at] = i
	}
	for d := range said.All() {
		if d.Service != x.port.ServiceName || d.Backend.Addr.Is4() != x.at.Addr.Is4() {
			continue
		}
		i, used := known[d.Backend]
		if !used && (d.Port != x.port.Port || d.Slice == "" || d.Backend.Protocol != x.port.Protocol) {
			x.other = d // of another port, or of an agent that does not say it
			continue
		}
		if !used {
			i = len(x.Backends)
			known[d.Backend] = i
			x.Backends = append(x.Backends, explainedShare{at: d.Backend, Backend: d.Backend.String(), Health: healthy, Unused: x.whyUnused(d, index, drained)})
		}
		b := &x.Backends[i]
		b.Pod, b.Node, b.Zone = podName(d), d.Node, d.Zone
	}
}

// byDrain is why a drained backend gets nothing.
const byDrain = "drained by headgate drain"

// whyUnused says why clients of a view do not get a backend.
func (x *explanation) whyUnused(d *lb.Description, index int, drained lb.Drained) string {
	switch d.State {
	case lb.StateReady:
		return "ready, and not for " + lb.ViewName(index) + " clients: " + x.Why
	case lb.StateServing:
		return "terminating: stands in only where none is ready"
	case lb.StateDraining:
		if drained.Backends[d.Backend] || drained.Nodes[d.Node] {
			return byDrain
		}
		return "of weight 0"
	case lb.StateUnready:
		return "not ready"
	default:
		return string(d.State)
	}
}

// findRoutes asks the kernel for the way to each backend: where the client is, and on this node for a pod behind a veth device.
func (x *explanation) findRoutes() {
	byNode := make([]bool, len(x.Backends))
	look := func() error {
		for i := range x.Backends {
			leaves, err := netdev.LeavesBy(x.Backends[i].at.Addr)
			x.Backends[i].NoRoute = err != nil && !x.Backends[i].carried
			byNode[i] = err == nil && netdev.IsVeth(leaves)
		}
		return nil
	}
	if x.asker.netns == "" {
		_ = look()
		return
	}
	_ = datapath.InNamespace(x.asker.netns, look) // one that is gone has no routes to tell of
	for i := range x.Backends {
		if byNode[i] {
			_, err := netdev.LeavesBy(x.Backends[i].at.Addr)
			x.Backends[i].NoRoute = err != nil
		}
	}
}

// tries are how many more connections of the client a program is given, to see which share each backend gets now. A
// retry of one that is ejected, of which there is at most one meanwhile, is half a percent of them.
const tries = 200

// noteRetry notes that a program has decided for a backend which is avoided, as a retry is due.
func (x *explanation) noteRetry(d datapath.Decision) {
	for i := range x.Backends {
		b := &x.Backends[i]
		b.RetryDue = b.RetryDue || d.IsRetry && d.To == netip.AddrPortFrom(b.at.Addr, b.at.Port)
	}
}

// tryShares has a program decide about them, after a first one. With session affinity all of them go where the first one does, and by load
// they go elsewhere than connections that end meanwhile.
func (x *explanation) tryShares(first datapath.Decision, decide func(i int) (datapath.Decision, error)) error {
	if x.noteRetry(first); first.IsRetry {
		x.Outcome += ", as a retry: the backend is avoided"
	}
	if x.Affinity != "" || x.byLoad || len(x.Backends) < 2 || x.Backends[1].Unused != "" {
		return nil
	}
	got := map[netip.AddrPort]int{}
	for i := range tries {
		d, err := decide(i)
		if err != nil {
			return err
		}
		x.noteRetry(d)
		got[d.To]++
	}
	for i := range x.Backends {
		b := &x.Backends[i]
		if x.failing = x.failing || b.Health != healthy; b.Unused != "" {
			continue
		}
		b.Now = new(100 * float64(got[netip.AddrPortFrom(b.at.Addr, b.at.Port)]) / tries)
	}
	return nil
}

// unlikely is how many standard deviations chance does not make, and doubtful how many count where a backend is not
// well: then shares differ as a rule.
const (
	unlikely = 6
	doubtful = 3
)

// tellsNow says whether the share now is worth a word: it differs from that as a rule, by more than chance makes of
// so few connections.
func (b explainedShare) tellsNow(failing bool) bool {
	if b.Now == nil {
		return false
	}
	usual, most := 0.0, float64(unlikely)
	if b.Percent != nil {
		usual = *b.Percent
	}
	if failing {
		most = doubtful
	}
	return math.Abs(*b.Now-usual) > most*math.Sqrt(usual*(100-usual)/tries)
}

// line is the line of the story about a backend.
func (x *explanation) line(b explainedShare) string {
	share, state := "by load", b.Health
	switch {
	case b.Unused != "":
		share, state = "none", b.Unused
	case b.Percent != nil:
		share = fmt.Sprintf("%.1f%%", *b.Percent)
	case b.StandsIn:
		share = "instead"
	}
	line := fmt.Sprintf("%-7s %s  %s", share, b.Backend, state)
	if b.tellsNow(x.failing) {
		line += fmt.Sprintf(", now %.0f%%", *b.Now)
	}
	if b.RetryDue {
		line += ", but for a retry, which is due"
	}
	if b.NoRoute {
		line += ", no route"
	}
	if place := placeOf(b.Pod, b.Node, b.Zone); place != "" {
		line += "  (" + place + ")"
	}
	if b.Tried != "" {
		line += "  " + b.Tried
	}
	return line
}

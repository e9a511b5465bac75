package cli

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// traffic is a Service port with what goes on there, from one look to the next.
type traffic struct {
	service
	// InZone is how much of what began since the look before went to backends in the zone of
	// this node; nil where nothing began, or nobody knows zones.
	InZone *percent `json:"inZonePercent,omitempty"`
	// Of the backends, nil where no agent says how they are.
	Ready    *int `json:"ready,omitempty"`
	Draining *int `json:"draining,omitempty"` // or terminating: they keep what they have
}

// title is the Service port, or that it is all of them.
func (t traffic) title() string {
	if t.port == (plan.Service{}) {
		return "total"
	}
	return t.port.String()
}

// reasons says why clients are refused, and how many in a second.
func (t traffic) reasons() string {
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(t.RefusedByReason)) {
		all = append(all, reason+" "+t.RefusedByReason[reason].String())
	}
	return strings.Join(all, ", ")
}

// trafficReader reads traffic again and again.
type trafficReader struct {
	said said
	look *trafficLook
}

// trafficLook is what one look at the maps has found, beside Service ports.
type trafficLook struct {
	at        time.Time
	node      string
	zone      string           // of this node, "" where nobody knows
	described bool             // an agent says how backends are
	backends  []trafficBackend // by ID
	failed    *rate            // connections that backends did not take
	ejections uint64           // since the programs are in force
}

// trafficBackend is a backend with what goes on there.
type trafficBackend struct {
	datapath.Backend
	began *rate
	said  *lb.Description
}

// noun returns the Service ports as the reader reads them.
func (t *trafficReader) noun() *grammar {
	return noun[traffic]{
		name: services.name, kind: "ServiceTraffic", words: services.words,
		columns: []column[traffic]{
			{title: "SERVICE", of: func(t traffic) any { return t.title() }},
			{title: "CONN/S", of: func(t traffic) any { return t.ConnectionsPerSecond.cell() }},
			{title: "IN FLIGHT", of: func(t traffic) any { return t.InFlight }},
			{title: "REFUSED/S", of: func(t traffic) any { return t.RefusedPerSecond.cell() }},
			{title: "ZONE", of: func(t traffic) any { return cellOf(t.InZone) }},
			{title: "READY", of: func(t traffic) any { return cellOf(t.Ready) }},
			{title: "EJECTED", of: func(t traffic) any { return t.Avoided }},
			{title: "DRAINING", of: func(t traffic) any { return cellOf(t.Draining) }},
			{title: "TO/S", of: func(t traffic) any { return t.BytesToPerSecond.size() }, wide: true},
			{title: "FROM/S", of: func(t traffic) any { return t.BytesFromPerSecond.size() }, wide: true},
			{title: "FAILED/S", of: func(t traffic) any { return t.FailedPerSecond.cell() }, wide: true},
			{title: "CONNECT", of: func(t traffic) any { return t.ConnectTimes.half() }, wide: true},
			{title: "REFUSED BY", of: func(t traffic) any { return t.reasons() }, wide: true},
		},
		read: t.read, compare: func(a, b traffic) int { return compareServices(a.service, b.service) }, namespaced: true,
	}.untyped()
}

// read reads Service ports and backends.
func (t *trafficReader) read(s *sight, do func(*traffic) error) error {
	found, err := readServices(s)
	if err != nil {
		return err
	}
	if t.look, err = t.readBackends(s); err != nil {
		return err
	}
	for i := range found {
		one := traffic{service: found[i]}
		one.judge(t.look, t.look.healthOf(found[i].ids))
		if err := do(&one); err != nil {
			return err
		}
	}
	return nil
}

// readBackends reads all backends once: many Service ports may have one.
func (t *trafficReader) readBackends(s *sight) (*trafficLook, error) {
	said := t.said.of(s.env)
	events, _, err := s.Counters()
	if err != nil {
		return nil, err
	}
	look := &trafficLook{
		at: s.rates.at, node: s.Node(), zone: said.ZoneOf(s.Node()), described: said != nil,
		failed: s.rates.of("connections that were not taken", events["backend_failed"]), ejections: events["backend_ejected"],
	}
	look.backends = make([]trafficBackend, 0, length2(s.Backends())+1)
	for id, b := range s.Backends() {
		for uint32(len(look.backends)) <= id {
			look.backends = append(look.backends, trafficBackend{})
		}
		was, known := t.look.connections(id, b.At, s.rates.before)
		look.backends[id] = trafficBackend{b, s.rates.grown(was, known, b.Connections), said.Of(b.At)}
	}
	return look, nil
}

// connections returns how many a backend had when there was a look; false if it was not there.
func (l *trafficLook) connections(id uint32, at lb.AddrPort, when time.Time) (uint64, bool) {
	if l == nil || id >= uint32(len(l.backends)) || l.backends[id].At != at || !l.at.Equal(when) {
		return 0, false
	}
	return l.backends[id].Connections, true
}

// healths is how some backends are.
type healths struct {
	all, ready, ejected, draining int
	inFlight                      uint32
	began, inZone                 rate
}

// healthOf returns how the backends with these IDs are.
func (l *trafficLook) healthOf(ids []uint32) (h healths) {
	for _, id := range ids {
		if id < uint32(len(l.backends)) {
			h.add(&l.backends[id], l.zone)
		}
	}
	return h
}

func (h *healths) add(b *trafficBackend, zone string) {
	h.all++
	h.inFlight += b.InFlight
	if b.began != nil {
		h.began += *b.began
		if b.said != nil && b.said.Zone == zone {
			h.inZone += *b.began
		}
	}
	switch {
	case b.Ejected > 0:
		h.ejected++
	case b.said == nil:
	case b.said.State == lb.StateReady:
		h.ready++
	case b.said.State != lb.StateUnready:
		h.draining++
	}
}

// judge takes what is said of the backends.
func (t *traffic) judge(l *trafficLook, h healths) {
	t.Backends, t.Avoided, t.InFlight = h.all, h.ejected, h.inFlight
	if l.described {
		t.Ready, t.Draining = &h.ready, &h.draining
	}
	if l.zone != "" && h.began > 0 {
		t.InZone = new(percent(100 * h.inZone / h.began))
	}
}

// total returns what all of some Service ports have. A backend of several counts once.
func (l *trafficLook) total(of []item) *traffic {
	out := &traffic{}
	seen, h := make([]bool, len(l.backends)), healths{}
	for _, one := range of {
		t := one.(*traffic)
		for _, id := range t.ids {
			if id < uint32(len(seen)) && !seen[id] {
				seen[id] = true
				h.add(&l.backends[id], l.zone)
			}
		}
		out.ConnectionsPerSecond = plus(out.ConnectionsPerSecond, t.ConnectionsPerSecond)
		out.RefusedPerSecond = plus(out.RefusedPerSecond, t.RefusedPerSecond)
		out.trafficRates = out.plus(t.trafficRates)
		for reason, n := range t.RefusedByReason {
			if out.RefusedByReason == nil {
				out.RefusedByReason = map[string]rate{}
			}
			out.RefusedByReason[reason] += n
		}
	}
	out.judge(l, h)
	return out
}

// plus adds rates, of which one may not be known.
func plus(a, b *rate) *rate {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return new(*a + *b)
	}
}

// backendsOf returns the backends of a Service port as they are shown.
func (l *trafficLook) backendsOf(t *traffic) (all []item) {
	for _, id := range t.ids {
		if id >= uint32(len(l.backends)) {
			continue
		}
		from := &l.backends[id]
		b := &backend{at: from.At, ID: id, Backend: from.At.String(), Load: from.Load, ConnectionsPerSecond: from.began}
		b.describe(from.said)
		all = append(all, b)
	}
	return all
}

// stateAndHealth is the state of a backend, or in few words what is wrong with it.
func (b backend) stateAndHealth() string {
	h := health(b.Load)
	if h == healthy {
		return b.State
	}
	h, _, _ = strings.Cut(h, " by the client")
	return strings.Replace(h, " for ", " ", 1)
}

// backendColumns are what is shown of the backends of one Service port.
var backendColumns = noun[backend]{columns: []column[backend]{
	{title: "BACKEND", of: func(b backend) any { return netip.AddrPortFrom(b.at.Addr, b.at.Port) }},
	{title: "CONN/S", of: func(b backend) any { return b.ConnectionsPerSecond.cell() }},
	{title: "IN FLIGHT", of: func(b backend) any { return b.InFlight }},
	{title: "STATE", of: func(b backend) any { return b.stateAndHealth() }},
	{title: "ZONE", of: func(b backend) any { return b.where(b.Zone) }},
	{title: "POD", of: func(b backend) any { return b.where(b.Pod) }},
}}

// summary says in three lines what goes on at one Service port or at all of some.
func (l *trafficLook) summary(t *traffic, since uint64) [3]string {
	share := "zone unknown"
	if l.zone != "" {
		share = fmt.Sprintf("%s in zone %s", lines(cellOf(t.InZone))[0], l.zone)
	}
	first := fmt.Sprintf("%s conn/s, %s in flight, %s", lines(t.ConnectionsPerSecond.cell())[0], grouped(uint64(t.InFlight)), share)
	if t.port == (plan.Service{}) { // what the node counts
		first += fmt.Sprintf("; %s/s not taken, %s", lines(l.failed.cell())[0], plural(int(l.ejections-min(since, l.ejections)), "ejection", "ejections"))
	}
	second := plural(t.Backends, "backend", "backends") + ": "
	if l.described {
		second += fmt.Sprintf("%d ready, %d ejected, %d draining", *t.Ready, t.Avoided, *t.Draining)
	} else {
		second += fmt.Sprintf("%d ejected, no agent says more", t.Avoided)
	}
	second += "; refused " + lines(t.RefusedPerSecond.cell())[0] + "/s"
	if why := t.reasons(); why != "" {
		second += ": " + why
	}
	third := fmt.Sprintf("%s/s to backends, %s/s from them; failed %s/s",
		lines(t.BytesToPerSecond.size())[0], lines(t.BytesFromPerSecond.size())[0], lines(t.FailedPerSecond.cell())[0])
	return [3]string{first, second, third}
}

package cli

import (
	"fmt"
	"hash/maphash"
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
	*service
	places []place // of its backends, one for each ID
	// InZone is how much of what began since the look before went to backends in the zone of
	// this node; nil where nothing began, or nobody knows zones.
	InZone *percent `json:"inZonePercent,omitempty"`
	// Draining is how many backends are so or terminating: they keep what they have. It is nil where no agent says how they are.
	Draining *int `json:"draining,omitempty"`
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
	said   said
	look   *trafficLook
	before countedBackends
	when   time.Time // that was, zero before the first look
	seed   maphash.Seed
	once   bool // there are two looks, of which the first only counts, and nobody asks for Pods
}

// trafficLook is what one look at the maps has found, beside Service ports.
type trafficLook struct {
	at        time.Time
	node      string
	zone      string                   // of this node, "" where nobody knows
	described bool                     // an agent says how backends are
	said      *lb.Told                 // by it
	backends  []trafficBackend         // by ID
	unwell    map[uint32]datapath.Load // of backends that are not healthy, by ID
	failed    *rate                    // connections that backends did not take
	ejections uint64                   // since the programs are in force
}

// trafficBackend is a backend with what goes on there. There may be very many, from two looks.
type trafficBackend struct {
	at          lb.CompactAddrPort
	inFlight    uint32
	connections uint64
	began       rate // if it is known
	known       bool
	ejected     bool
}

// counted is how many connections a backend had in the look before.
type counted struct {
	at          uint64 // hash of its address
	connections uint64
}

// countedBackends are backends by ID, which a look goes through in this order. It replaces those of the look before as it
// goes: only one of the two is kept.
type countedBackends struct {
	all  []counted
	next uint32 // ID that the look has not come to
}

// begin begins a look, and forgets what is not of the look before.
func (c *countedBackends) begin(known bool) {
	c.next = 0
	if !known {
		c.all = c.all[:0]
	}
}

// replace returns what the backend with an ID was; zero if it was not there.
func (c *countedBackends) replace(id uint32, is counted) (was counted) {
	c.all = longer(c.all, id)
	clear(c.all[c.next:id]) // those that are gone
	was, c.all[id], c.next = c.all[id], is, id+1
	return was
}

func (c *countedBackends) end() { c.all = c.all[:c.next] }

// place is what is known of a backend of a Service.
type place struct {
	standing standing
	inZone   bool // of this node
}

// standing is how a backend is, in the words of healths: the best comes last.
type standing uint8

const (
	standsUnknown standing = iota // or gets nothing
	standsEjected
	standsDraining
	standsReady
)

// placeOf returns what is known of a backend of a Service port.
func (l *trafficLook) placeOf(b *trafficBackend, s *service) (p place) {
	said := l.said.Of(b.at.AddrPort(), s.port.ServiceName)
	p.inZone = said != nil && said.Zone == l.zone
	switch {
	case b.ejected:
		p.standing = standsEjected
	case said == nil || said.State == lb.StateUnready:
	case said.State == lb.StateReady:
		p.standing = standsReady
	default:
		p.standing = standsDraining
	}
	return p
}

// put takes what is known of a backend.
func (l *trafficLook) put(id uint32, b datapath.Backend, began *rate) {
	l.backends = longer(l.backends, id)
	one := trafficBackend{at: b.At.Compact(), inFlight: b.InFlight, connections: b.Connections, known: began != nil, ejected: b.Ejected > 0}
	if began != nil {
		one.began = *began
	}
	l.backends[id] = one
	if health(b.Load) == healthy {
		return
	}
	if l.unwell == nil {
		l.unwell = map[uint32]datapath.Load{}
	}
	l.unwell[id] = b.Load
}

// longer returns a list that has an element with an ID.
func longer[T any](all []T, id uint32) []T {
	for uint32(len(all)) <= id {
		all = append(all, *new(T))
	}
	return all
}

// noun returns the Service ports as the reader reads them.
func (t *trafficReader) noun() *grammar {
	return noun[traffic]{
		name: services.name, kind: "ServiceTraffic", words: services.words,
		columns: []column[traffic]{
			{title: "SERVICE", of: func(t traffic) any { return t.title() }},
			{title: "CONN/S", of: func(t traffic) any { return t.ConnectionsPerSecond.cell() }},
			{title: "IN FLIGHT", of: func(t traffic) any { return t.flights() }},
			{title: "REFUSED/S", of: func(t traffic) any { return t.RefusedPerSecond.cell() }},
			{title: "ZONE", of: func(t traffic) any { return cellOf(t.InZone) }},
			{title: "READY", of: func(t traffic) any { return t.readiness() }},
			{title: "EJECTED", of: func(t traffic) any { return t.Avoided }},
			{title: "DRAINING", of: func(t traffic) any { return cellOf(t.Draining) }},
			{title: "TO/S", of: func(t traffic) any { return t.BytesToPerSecond.size() }, wide: true},
			{title: "FROM/S", of: func(t traffic) any { return t.BytesFromPerSecond.size() }, wide: true},
			{title: "FAILED/S", of: func(t traffic) any { return t.FailedPerSecond.cell() }, wide: true},
			{title: "CONNECT", of: func(t traffic) any { return t.ConnectTimes.half() }, wide: true},
			{title: "REFUSED BY", of: func(t traffic) any { return t.reasons() }, wide: true},
		},
		read: t.read, compare: func(a, b traffic) int { return compareServices(*a.service, *b.service) }, namespaced: true,
	}.untyped()
}

// read reads Service ports and backends. There may be very many: nothing of the look before is kept meanwhile but
// counters, and what is said of backends is made small before there is more to keep.
func (t *trafficReader) read(s *sight, do func(*traffic) error) error {
	t.look = nil
	look, err := t.ask(s)
	if err != nil {
		return err
	}
	found, err := readServices(s)
	if err != nil {
		return err
	}
	t.readBackends(s, look)
	t.look = look
	for i := range found {
		one := traffic{service: &found[i]}
		one.judge(look, look.healthOf(&found[i]))
		if err := do(&one); err != nil {
			return err
		}
	}
	return nil
}

// ask begins a look with what the agent says.
func (t *trafficReader) ask(s *sight) (*trafficLook, error) {
	events, _, err := s.Counters()
	if err != nil {
		return nil, err
	}
	look := &trafficLook{
		at: s.rates.at, node: s.Node(), failed: s.rates.of("connections that were not taken", events["backend_failed"]), ejections: events["backend_ejected"],
	}
	switch {
	case !t.once:
		look.said = t.said.of(s.env)
	case !t.when.IsZero():
		look.said = s.env.told()
	}
	look.described, look.zone = look.said != nil, look.said.ZoneOf(s.Node())
	return look, nil
}

// readBackends reads all backends once: many Service ports may have one.
func (t *trafficReader) readBackends(s *sight, look *trafficLook) {
	n := length2(s.Backends()) + 1
	look.backends = make([]trafficBackend, 0, n)
	t.before.all = slices.Grow(t.before.all, max(n-len(t.before.all), 0))
	t.before.begin(t.when.Equal(s.rates.before))
	for id, b := range s.Backends() {
		is := counted{t.hash(b.At), b.Connections}
		was := t.before.replace(id, is)
		look.put(id, b, s.rates.grown(was.connections, was.at == is.at, is.connections))
	}
	t.before.end()
	t.when = look.at
}

// hash returns what a backend is told from another one by that had its ID. It is never 0.
func (t *trafficReader) hash(at lb.AddrPort) uint64 {
	if t.seed == (maphash.Seed{}) {
		t.seed = maphash.MakeSeed()
	}
	return maphash.Comparable(t.seed, at.Compact()) | 1
}

// backendsOf returns the backends of a Service port as they are shown.
func (l *trafficLook) backendsOf(t *traffic) (all []item) {
	for _, id := range t.ids {
		if id >= uint32(len(l.backends)) {
			continue
		}
		from := &l.backends[id]
		at := from.at.AddrPort()
		b := &backend{at: at, ID: id, Backend: at.String(), Load: l.unwell[id]}
		if from.known {
			b.ConnectionsPerSecond = &from.began
		}
		b.InFlight, b.Connections = from.inFlight, from.connections
		b.described = describe(l.said.Of(at, t.port.ServiceName), b.Load)
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
	first := fmt.Sprintf("%s conn/s, %s%s in flight, %s", lines(t.ConnectionsPerSecond.cell())[0], t.flights().bound(), grouped(uint64(t.InFlight)), share)
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

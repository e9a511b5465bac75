package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// scenario is a line of the tables of connect().
type scenario struct {
	name     string
	key      string
	services int
	backends int
	targets  int // addresses that are connected to, in random order
	foreign  bool
}

func (b *bench) scenarios() []scenario {
	var out []scenario
	for _, n := range b.plan.scales {
		name := count(n) + " Services, each in turn at random"
		if n == 1 {
			name = "1 Service, 10 backends"
		}
		out = append(out, scenario{name, fmt.Sprintf("services=%d", n), n, 10, n, false})
	}
	most := b.most()
	return append(out,
		scenario{count(most) + " Services, always the same one", "same", most, 10, 1, false},
		scenario{"1 Service, 1 backend", "backends=1", 1, 1, 1, false},
		scenario{"1 Service, 1,000 backends", "backends=1000", 1, 1000, 1, false},
		scenario{count(most) + " Services, an address that is none", "foreign", most, 10, most, true},
	)
}

// most returns the largest number of Services.
func (b *bench) most() int { return b.plan.scales[len(b.plan.scales)-1] }

// comparison is a scenario without a program, with an empty one, and with
// Headgate.
type comparison struct {
	scenario
	none, empty, headgate *kase
}

// connect measures what connect() costs more with Headgate.
func (b *bench) connect() error {
	for _, f := range flavours {
		for _, s := range b.scenarios() { // before anything is timed
			if _, err := b.product(f, s.services, s.backends); err != nil {
				return err
			}
		}
		if err := b.connectFlavour(f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func (b *bench) connectFlavour(f flavour) error {
	bare, err := b.bare()
	if err != nil {
		return err
	}
	empty, err := b.empty()
	if err != nil {
		return err
	}
	maker, err := b.newMaker(f, bare)
	if err != nil {
		return err
	}
	defer maker.close()
	var comparisons []*comparison
	var cases []*kase
	for _, s := range b.scenarios() {
		c, err := maker.compare(s, bare, empty)
		if err != nil {
			return err
		}
		comparisons = append(comparisons, c)
		cases = append(cases, c.headgate, c.none, c.empty)
	}
	again, err := maker.kase("no program, again", bare, newTargets(f.backend, 10, backendPort), backendPort)
	if err != nil {
		return err
	}
	if err := b.interleave(f.name, append(cases, again), b.plan.rounds); err != nil {
		return err
	}
	b.reportConnect(f, comparisons, again)
	return nil
}

// maker makes the cases of a flavour.
type maker struct {
	b         *bench
	f         flavour
	listeners map[uint16]int
	sockets   []int
}

// newMaker opens the servers, in a group without programs.
func (b *bench) newMaker(f flavour, bare *group) (*maker, error) {
	m := &maker{b: b, f: f}
	if err := b.enter(bare); err != nil {
		return nil, err
	}
	if f.kind != unix.SOCK_STREAM {
		return m, nil
	}
	family := newTargets(f.service, 1, servicePort).family
	if b.listeners[family] == nil {
		listeners, err := listenTCP(family, servicePort, backendPort)
		if err != nil {
			return nil, err
		}
		b.listeners[family] = listeners
	}
	m.listeners = b.listeners[family]
	return m, nil
}

// compare makes the cases of a scenario. Without Headgate the client goes to
// the same backends itself.
func (m *maker) compare(s scenario, bare, empty *group) (*comparison, error) {
	to, direct, port := newTargets(m.f.service, s.targets, servicePort), newTargets(m.f.backend, s.targets*s.backends, backendPort), uint16(backendPort)
	if s.foreign {
		to, port = newTargets(m.f.foreign, s.targets, servicePort), servicePort
		direct = to
	}
	g, err := m.b.product(m.f, s.services, s.backends)
	if err != nil {
		return nil, err
	}
	c := &comparison{scenario: s}
	if c.headgate, err = m.kase(s.name, g, to, port); err != nil {
		return nil, err
	}
	if c.none, err = m.kase(s.name+", no program", bare, direct, port); err != nil {
		return nil, err
	}
	c.empty, err = m.kase(s.name+", empty program", empty, direct, port)
	return c, err
}

// kase returns a case whose sockets are made in a group; port is where TCP
// connections come out.
func (m *maker) kase(name string, g *group, t *targets, port uint16) (*kase, error) {
	if m.f.kind == unix.SOCK_STREAM {
		return &kase{name: name, group: g, n: m.b.plan.tcpCalls, op: connectTCP(t, m.listeners, port)}, nil
	}
	if err := m.b.enter(g); err != nil {
		return nil, err
	}
	fd, err := socket(t.family, unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	m.sockets = append(m.sockets, fd)
	return &kase{name: name, n: m.b.plan.calls, op: reconnect(fd, t)}, nil
}

func (m *maker) close() {
	for _, fd := range m.sockets {
		closeSocket(fd)
	}
}

// reportConnect adds the table and the figures of a flavour.
func (b *bench) reportConnect(f flavour, comparisons []*comparison, again *kase) {
	t := table{
		Title:  "connect(), " + f.name,
		Header: []string{"case", "no program", "empty", "Headgate", "p99 none", "p99", "added", "quartiles", "over empty", "× 1 Service", "none × 1"},
	}
	first := comparisons[0]
	for _, c := range comparisons {
		c.key = "connect/" + f.key + "/" + c.key
		cells := append([]string{c.name}, b.compare(c)...)
		times, noneTimes := ratio(c.headgate.typical, first.headgate.typical), ratio(c.none.typical, first.none.typical)
		// By how much it slows down beyond what it does without a program.
		own := roundByRound(c.headgate.typical, c.none.typical, divide)
		b.report.add(c.key+"/times_1_service_beside_none", "ratio", ratio(own, roundByRound(first.headgate.typical, first.none.typical, divide)))
		b.report.add(c.key+"/added_mean", "ns", added(c.headgate.mean, c.none.mean))
		b.report.add(c.key+"/times_1_service", "ratio", times)
		b.report.add(c.key+"/none_times_1_service", "ratio", noneTimes)
		if c.foreign {
			cells = append(cells, "–", "–")
		} else {
			cells = append(cells, fmt.Sprintf("%.3f", times.Median), fmt.Sprintf("%.3f", noneTimes.Median))
		}
		t.row(cells...)
	}
	noise := added(again.typical, first.none.typical)
	b.report.add("connect/"+f.key+"/noise", "ns", noise)
	t.Note = fmt.Sprintf("ns. Noise: the first case without a program, measured twice in the same rounds, differs by %s ns (%s). "+
		"The last two columns are how many times as slow as the first line a line is, with Headgate and without.", ns(noise), spread(noise))
	b.report.table(t)
}

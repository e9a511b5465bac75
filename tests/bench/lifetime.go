package main

import (
	"fmt"
)

// lifetime measures sockets from socket() to close(), so that the hook at the
// end is seen, too.
func (b *bench) lifetime() error {
	bare, err := b.bare()
	if err != nil {
		return err
	}
	empty, err := b.empty()
	if err != nil {
		return err
	}
	for _, f := range []flavour{udp4, udp6} {
		if err := b.lifetimeOf(f, bare, empty); err != nil {
			return err
		}
	}
	for _, f := range []flavour{tcp4, tcp6} {
		if err := b.lifetimeTCP(f, bare, empty); err != nil {
			return err
		}
	}
	return nil
}

// lifetimeTCP measures connections from socket() until both ends are closed.
func (b *bench) lifetimeTCP(f flavour, bare, empty *group) error {
	maker, err := b.newMaker(f, bare)
	if err != nil {
		return err
	}
	own, err := b.product(f, 1, 10)
	if err != nil {
		return err
	}
	life := func(name string, g *group, t *targets) *kase {
		return &kase{name: name, group: g, n: b.plan.tcpCalls, op: lifeTCP(t, maker.listeners, backendPort)}
	}
	backends := newTargets(f.backend, 10, backendPort)
	c := &comparison{
		none:     life("no program", bare, backends),
		empty:    life("empty program", empty, backends),
		headgate: life("Headgate", own, newTargets(f.service, 1, servicePort)),
	}
	if err := b.interleave("connections, "+f.name, []*kase{c.none, c.empty, c.headgate}, b.plan.rounds); err != nil {
		return err
	}
	c.key = "lifetime/" + f.key + "/whole"
	b.report.table(table{
		Title: "A connection from socket() to the close of both ends, " + f.name, Note: "ns. Failures are noted when the kernel reports them, the end of the socket by sock_release.",
		Header: []string{"case", "no program", "empty", "Headgate", "p99 none", "p99", "added", "quartiles", "over empty"},
		Rows:   [][]string{append([]string{"socket(), connect(), accept(), close() of both"}, b.compare(c)...)},
	})
	return nil
}

func (b *bench) lifetimeOf(f flavour, bare, empty *group) error {
	type line struct {
		name string
		part part
		most bool
		*comparison
	}
	most := b.most()
	lines := []*line{
		{name: "socket(), connect(), close()", part: wholeLife},
		{name: "of that the first connect()", part: firstConnect},
		{name: "of that close()", part: lastClose},
		{name: fmt.Sprintf("all three, %s Services at random", count(most)), part: wholeLife, most: true},
	}
	var cases []*kase
	for _, l := range lines {
		services, targets := 1, newTargets(f.service, 1, servicePort)
		if l.most {
			services, targets = most, newTargets(f.service, most, servicePort)
		}
		own, err := b.product(f, services, 10)
		if err != nil {
			return err
		}
		n := b.plan.calls / 2
		l.comparison = &comparison{
			none:     &kase{name: l.name + ", no program", group: bare, n: n, op: life(targets, l.part)},
			empty:    &kase{name: l.name + ", empty program", group: empty, n: n, op: life(targets, l.part)},
			headgate: &kase{name: l.name, group: own, n: n, op: life(targets, l.part)},
		}
		cases = append(cases, l.none, l.empty, l.headgate)
	}
	if err := b.interleave("sockets, "+f.name, cases, b.plan.rounds); err != nil {
		return err
	}
	t := table{
		Title: "A socket from socket() to close(), " + f.name, Note: "ns. Close runs the program that deletes the socket NAT entry.",
		Header: []string{"case", "no program", "empty", "Headgate", "p99 none", "p99", "added", "quartiles", "over empty"},
	}
	for _, l := range lines {
		l.key = fmt.Sprintf("lifetime/%s/%s", f.key, map[part]string{wholeLife: "whole", firstConnect: "connect", lastClose: "close"}[l.part])
		if l.most {
			l.key += "_most"
		}
		t.row(append([]string{l.name}, b.compare(l.comparison)...)...)
	}
	b.report.table(t)
	return nil
}

// compare adds the figures of a comparison and returns them as cells.
func (b *bench) compare(c *comparison) []string {
	none, empty, own := summary(c.none.typical), summary(c.empty.typical), summary(c.headgate.typical)
	plus, over := added(c.headgate.typical, c.none.typical), added(c.headgate.typical, c.empty.typical)
	for name, s := range map[string]stat{"none": none, "empty": empty, "headgate": own, "added": plus, "over_empty": over,
		"headgate_p99": summary(c.headgate.p99), "none_p99": summary(c.none.p99)} {
		b.report.add(c.key+"/"+name, "ns", s)
	}
	return []string{ns(none), ns(empty), ns(own), ns(summary(c.none.p99)), ns(summary(c.headgate.p99)), ns(plus), spread(plus), ns(over)}
}

// datagram measures sendto() and recvfrom() of a socket that is never
// connected: the hooks run for every datagram.
func (b *bench) datagram() error {
	bare, err := b.bare()
	if err != nil {
		return err
	}
	empty, err := b.empty()
	if err != nil {
		return err
	}
	t := table{
		Title: "An unconnected UDP socket: sendto() a Service and recvfrom() it, and sendto() no Service, 32 bytes",
		Note: "ns; one Service with 10 backends, the server in another cgroup. sendto() includes delivery to the server's queue over loopback. " +
			"Without a program and with an empty one the client sends to the backend itself.",
		Header: []string{"call", "no program", "empty", "Headgate", "p99 none", "p99", "added", "quartiles", "over empty"},
	}
	for _, f := range []flavour{udp4, udp6} {
		own, err := b.product(f, 1, 10)
		if err != nil {
			return err
		}
		comparisons, err := b.datagramOf(f, bare, empty, own)
		if err != nil {
			return err
		}
		for _, c := range comparisons {
			t.row(append([]string{c.name}, b.compare(c)...)...)
		}
	}
	b.report.table(t)
	return nil
}

func (b *bench) datagramOf(f flavour, bare, empty, own *group) ([]*comparison, error) {
	toService, toBackend := newTargets(f.service, 1, servicePort), newTargets(f.backend, 1, backendPort)
	var opened []*exchange
	defer func() {
		for _, e := range opened {
			e.close()
		}
	}()
	var comparisons []*comparison
	var cases []*kase
	for _, one := range []struct {
		name, key string
		timed     call
		to        *targets // with Headgate
	}{{"sendto", "sendto", sendTo, toService}, {"recvfrom", "recvfrom", receiveFrom, toService}, {"sendto, no Service", "sendto_foreign", sendTo, toBackend}} {
		c := &comparison{scenario: scenario{name: one.name + ", " + f.name, key: fmt.Sprintf("datagram/%s/%s", f.key, one.key)}}
		for _, side := range []struct {
			kase  **kase
			group *group
			to    *targets
		}{{&c.none, bare, toBackend}, {&c.empty, empty, toBackend}, {&c.headgate, own, one.to}} {
			e, err := b.newExchange(bare, side.group, side.to)
			if err != nil {
				return nil, err
			}
			opened = append(opened, e)
			*side.kase = &kase{name: c.name + ", " + side.group.name, n: b.plan.calls / 2, op: e.call(one.timed)}
		}
		comparisons = append(comparisons, c)
		cases = append(cases, c.none, c.empty, c.headgate)
	}
	return comparisons, b.interleave("datagrams, "+f.name, cases, b.plan.rounds)
}

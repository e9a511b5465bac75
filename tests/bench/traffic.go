package main

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// traffic measures what it costs to count traffic, beside the same programs with counting compiled out.
func (b *bench) traffic() error {
	return errors.Join(b.trafficOfSockets(), b.trafficOfPackets())
}

// trafficOfSockets does so for a connection of a socket: the program at its end.
func (b *bench) trafficOfSockets() error {
	t := table{
		Title:  "Counting bytes and connect times of a TCP connection",
		Note:   "Run time of sock_release by the kernel's statistics, in ns: means of batches, median of rounds, which are interleaved.",
		Header: []string{"family", "not counted", "counted", "added", "quartiles"},
	}
	for _, f := range []flavour{tcp4, tcp6} {
		counted, err := b.product(f, 1, 10)
		if err != nil {
			return err
		}
		not, err := b.uncounted(f)
		if err != nil {
			return err
		}
		bare, err := b.bare()
		if err != nil {
			return err
		}
		maker, err := b.newMaker(f, bare)
		if err != nil {
			return err
		}
		var runners []*runner
		for _, g := range []*group{not, counted} {
			to := newTargets(f.service, 1, servicePort)
			runners = append(runners, &runner{
				name: "sock_release, " + f.name, program: g.programs["sock_release"],
				kase: &kase{group: g, n: b.plan.tcpCalls, op: lifeTCP(to, maker.listeners, backendPort)},
			})
		}
		if err := b.countAllRuns(runners); err != nil {
			return err
		}
		plus := added(runners[1].ns, runners[0].ns)
		b.report.add("traffic/"+f.key+"/added", "ns", plus)
		t.row(f.name, ns(summary(runners[0].ns)), ns(summary(runners[1].ns)), ns(plus), spread(plus))
	}
	b.report.table(t)
	return nil
}

// uncounted returns a group with a Service whose traffic is not counted.
func (b *bench) uncounted(f flavour) (*group, error) {
	g, err := b.newGroup("uncounted-" + f.key)
	if err != nil {
		return nil, err
	}
	g.root = filepath.Join(b.bpffs, "uncounted-"+f.key)
	cfg := g.config(nil)
	cfg.Traffic = false
	if err := fillWith(cfg, f, 1, 10); err != nil {
		return nil, err
	}
	return g, g.openPinned()
}

// trafficOfPackets does so for packets that follow in flows.
func (b *bench) trafficOfPackets() error {
	leave, err := stayOnOneCPU()
	if err != nil {
		return err
	}
	defer leave()
	var pairs [2][]*packetCase // not counted, counted
	for i := range pairs {
		cases, closeAll, err := b.trafficCases(i == 1)
		defer closeAll()
		if err != nil {
			return err
		}
		pairs[i] = cases
	}
	for range b.plan.rounds {
		for i := range pairs[0] {
			for _, side := range pairs {
				if err := errors.Join(b.ctx.Err(), side[i].round(b.plan.packets)); err != nil {
					return fmt.Errorf("%s: %w", side[i].name, err)
				}
			}
		}
	}
	t := table{
		Title:  "Counting a packet of a flow",
		Note:   "Run time of the program in ns, with what it takes to replay a packet: rounds are interleaved.",
		Header: []string{"packet", "flows", "not counted", "counted", "added", "quartiles", "least"},
	}
	for i, is := range pairs[1] {
		was := pairs[0][i]
		plus := added(is.ns, was.ns)
		plus.Least = slices.Min(is.ns) - slices.Min(was.ns)
		b.report.add("traffic/packet/"+is.key, "ns", plus)
		t.row(is.name, count(is.flows), ns(summary(was.ns)), ns(summary(is.ns)), ns(plus), spread(plus), us(plus.Least))
	}
	b.report.table(t)
	return nil
}

// trafficAims compares what counting adds with what was asked for.
func (r *report) trafficAims(t *table) {
	for _, f := range []flavour{tcp4, tcp6} {
		r.aim(t, "traffic of a connection counts, "+f.name, "traffic/"+f.key+"/added", 20, "%.0f ns")
	}
	for _, flows := range r.plan.flows {
		r.aim(t, "a later packet counts, of "+count(flows), fmt.Sprintf("traffic/packet/later_in/%d", flows), 5, "%.0f ns")
		r.aim(t, "one that a driver repeats, of "+count(flows), fmt.Sprintf("traffic/packet/repeat/%d", flows), 5, "%.0f ns")
	}
}

// trafficCases are packets of flows that are there, counted or not.
func (b *bench) trafficCases(counted bool) (cases []*packetCase, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	frontend, backend := netip.AddrPortFrom(nth(serviceNet4, 1), servicePort), netip.AddrPortFrom(nth(backendNet4, 1), backendPort)
	for _, flows := range b.plan.flows {
		name := fmt.Sprintf("traffic-%d-%v", flows, counted)
		n, err := b.packetNodeOf(name, nil, func(c *datapath.Config) {
			c.Traffic, c.Flows = counted, uint32(max(1<<18, flows*5/2))
		})
		if err != nil {
			return nil, closeAll, err
		}
		closers = append(closers, n.close)
		if err := n.establish(b, flows, frontend, backend); err != nil {
			return nil, closeAll, err
		}
		cases = append(cases,
			&packetCase{name: "in, later of a flow", key: fmt.Sprint("later_in/", flows), flows: flows, node: n, program: "device_in", peer: frontend, flags: ack, protocol: lb.TCP},
			&packetCase{name: "out, answer of a flow", key: fmt.Sprint("later_out/", flows), flows: flows, node: n, program: "device_out", peer: backend, flags: ack, fromPeer: true, protocol: lb.TCP})
		if n, err = b.routedNodeOf(name+"-driven", nil, flows, true, func(c *datapath.Config) { c.Traffic = counted }); err != nil {
			return nil, closeAll, err
		}
		closers = append(closers, n.close)
		cases = append(cases, &packetCase{name: "at a driver, repeated", key: fmt.Sprint("repeat/", flows), flows: flows, node: n, program: "uplink", flags: ack, protocol: lb.TCP, atDriver: true, routed: true, peer: n.frontend, peers: routedBackends})
	}
	return cases, closeAll, nil
}

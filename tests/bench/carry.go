package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// carry measures what is carried to the nodes of backends: its packets at TC, where they come in
// and at their home, and transfers and connections beside those by SNAT.
func (b *bench) carry() error {
	if err := b.carryPackets(); err != nil {
		return err
	}
	return b.carryTransfers()
}

// carryCases are packets at TC, for datapaths of an object; nil is the one built in. Each comes with
// the same packet that meets no program.
type carryCases struct {
	name   string // sets them apart from those of other objects
	object []byte

	all         []*packetCase
	home, local []*packetCase // by number of flows
	nodes       []*packetNode
}

func (c *carryCases) close() {
	for _, n := range c.nodes {
		n.close()
	}
}

// add adds a packet of flows, after one that meets no program unless one like it has.
func (c *carryCases) add(p packetCase) *packetCase {
	p.protocol, p.peer = lb.TCP, p.node.frontend
	like := func(o *packetCase) bool {
		return o.base == nil && o.carried == p.carried && o.isCovered() == p.isCovered()
	}
	if i := slices.IndexFunc(c.all, like); i >= 0 {
		p.base = c.all[i]
	} else {
		base := p
		base.name, base.program, base.flows = "no program", "", 1
		c.all = append(c.all, &base)
		p.base = &base
	}
	c.all = append(c.all, &p)
	return &p
}

// addIngress adds packets where they come in.
func (c *carryCases) addIngress(b *bench) error {
	n, err := b.carriedNode("carry-ingress"+c.name, c.object, false)
	if err != nil {
		return err
	}
	c.nodes = append(c.nodes, n)
	for _, flows := range b.plan.flows {
		c.add(packetCase{name: "where it comes in", key: fmt.Sprintf("carry/%d", flows), flows: flows, node: n, program: "device_in", flags: ack, carried: true})
	}
	first := c.add(packetCase{name: "where it comes in, SYN", key: "carry/syn", flows: allFlows, node: n, program: "device_in", flags: syn, carried: true})
	return first.isCarried()
}

// addFloors adds what the kernel alone takes for what programs have it do with each packet.
func (c *carryCases) addFloors() error {
	n := c.nodes[0]
	far := netip.PrefixFrom(n.uplink.IP4, 16).Masked().Addr().Next() // the first peer
	for _, f := range []struct{ program, name string }{
		{"make_room", "the kernel makes room for an outer header, alone"},
		{"find_hop", "the same, and finds the next hop"},
	} {
		c.add(packetCase{name: f.name, key: "carry/" + f.program, flows: 1024, node: n, program: f.program, flags: ack, carried: true})
	}
	off := c.add(packetCase{name: "the kernel takes an outer header off, alone", key: "home/take_off", flows: 1024, node: n, flags: ack, carried: true})
	off.base = c.local[0].base // which has none
	return n.replay.Far.Set(uint32(addr4(far)))
}

// addHome adds later packets of flows at their home, and the same of local flows.
func (c *carryCases) addHome(b *bench) error {
	for _, flows := range b.plan.flows {
		home, err := b.homeNode(fmt.Sprint("carry-home-", flows, c.name), c.object, flows)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, home)
		local, err := b.packetNode(fmt.Sprint("carry-local-", flows, c.name), c.object, uint32(max(1<<18, flows*5/2)))
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, local)
		local.frontend = netip.AddrPortFrom(nth(serviceNet4, 1), servicePort)
		if err := local.establish(b, flows, local.frontend, netip.AddrPortFrom(nth(backendNet4, 1), backendPort)); err != nil {
			return err
		}
		key := fmt.Sprint("/", flows)
		c.home = append(c.home, c.add(packetCase{name: "at home, later of a flow", key: "home" + key, flows: flows, node: home, program: "device_in", flags: ack}))
		if err := c.home[len(c.home)-1].isUncovered(); err != nil {
			return err
		}
		c.local = append(c.local, c.add(packetCase{name: "of a client's flow to a backend here", key: "local" + key, flows: flows, node: local, program: "device_in", flags: ack}))
	}
	return nil
}

func (c *carryCases) addAll(b *bench) error {
	if err := c.addIngress(b); err != nil {
		return err
	}
	if err := c.addHome(b); err != nil {
		return err
	}
	return c.addFloors()
}

// carryPackets measures what a packet costs that is carried.
func (b *bench) carryPackets() error {
	leave, err := stayOnOneCPU()
	if err != nil {
		return err
	}
	defer leave()
	cases := &carryCases{}
	defer cases.close()
	if err := cases.addAll(b); err != nil {
		return err
	}
	for round := range b.plan.rounds {
		b.progress(fmt.Sprintf("round %d of %d", round+1, b.plan.rounds))
		for _, c := range cases.all {
			if err := errors.Join(b.ctx.Err(), c.measure(b.plan.packets)); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	b.reportCarryPackets(cases)
	return nil
}

func (b *bench) reportCarryPackets(cases *carryCases) {
	t := table{
		Title:  "A packet that is carried, at TC: run time of the program, TCP over IPv4, ns",
		Header: []string{"packet", "flows", "net", "quartiles", "least", "over local", "quartiles"},
		Note: fmt.Sprintf("As packets at a device are measured, with outer headers of IPv4 and UDP, and a proof in each. A frame is %d bytes longer than its packet: the program that replays packets takes off the outer header that is put before each, or "+
			"writes one before each, so that test runs may repeat. It does so where there is no program, too, so that what its own proofs cost is taken off. The first packet of a connection where it comes in is as any other: nothing is kept. "+
			"The Service has %d backends on %d nodes. Over local is what a packet costs more at its home than one of a client who is elsewhere and came to the node of the backend in the first place, round by round.",
			outerRuns*outerBytes, carriedBackends, carriedPeers),
	}
	for _, c := range cases.all {
		if c.base == nil {
			continue
		}
		row := append(append([]string{c.name}, b.packetFigures(c)...), "–", "–")
		if i := slices.Index(cases.home, c); i >= 0 {
			local := cases.local[i]
			over := added(roundByRound(c.ns, c.base.ns, minus), roundByRound(local.ns, local.base.ns, minus))
			b.report.add("packets/"+c.key+"/over_local", "ns", over)
			row[len(row)-2], row[len(row)-1] = ns(over), spread(over)
		}
		t.row(row...)
	}
	b.report.table(t)
}

// carryAims compares what is carried with what was asked for.
func (r *report) carryAims(t *table) {
	for _, flows := range r.plan.flows {
		r.aim(t, "a packet that TC carries, of "+count(flows), fmt.Sprintf("packets/carry/%d", flows), 110, "%.0f ns")
	}
	r.aim(t, "the same, SYN", "packets/carry/syn", 110, "%.0f ns")
	for _, flows := range r.plan.flows {
		r.aim(t, "a carried packet at its home, over one of a local flow, of "+count(flows), fmt.Sprintf("packets/home/%d/over_local", flows), 40, "%.0f ns")
	}
	r.aim(t, "memory of a carried connection where it comes in", "carry/carried/state", 0, "%.0f bytes")
}

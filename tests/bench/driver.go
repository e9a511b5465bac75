package main

import (
	"fmt"

	"github.com/headgate/headgate/pkg/lb"
)

// routedPackets are those of flows to backends on other nodes: at TC, and at a driver that
// repeats what TC did. The first of each meets no program.
func (b *bench) routedPackets(name string, object []byte) (cases []*packetCase, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	driven := false
	add := func(n *packetNode, base *packetCase, c packetCase) *packetCase {
		c.node, c.base, c.routed, c.atDriver, c.protocol = n, base, true, driven, lb.TCP
		if c.peers == 0 {
			c.peer, c.peers = n.frontend, routedBackends
		}
		cases = append(cases, &c)
		return &c
	}
	var atTC, atDriver *packetCase
	for _, flows := range b.plan.flows {
		key := fmt.Sprint(flows)
		driven = false
		n, err := b.routedNode("routed-"+key+name, object, flows, false)
		if err != nil {
			return nil, closeAll, err
		}
		closers = append(closers, n.close)
		if atTC == nil {
			atTC = add(n, nil, packetCase{name: "no program", flows: 1, flags: ack})
		}
		add(n, atTC, packetCase{name: "at TC, decided where it comes", key: "routed_in/" + key, flows: flows, program: "device_in", flags: ack, decided: true})
		add(n, atTC, packetCase{name: "at TC, decided where it leaves", key: "routed_out/" + key, flows: flows, program: "device_out", flags: ack, peer: n.backend, peers: routedBackends, decided: true})
		add(n, atTC, packetCase{name: "at TC, repeated where it comes", key: "routed_repeat/" + key, flows: flows, program: "device_in", flags: ack})

		driven = true
		if n, err = b.routedNode("driven-"+key+name, object, flows, true); err != nil {
			return nil, closeAll, err
		}
		closers = append(closers, n.close)
		if atDriver == nil {
			atDriver = add(n, nil, packetCase{name: "no program", flows: 1, flags: ack})
			add(n, atDriver, packetCase{name: "at the driver, for no Service", key: "driver/foreign", flows: 1024, program: "uplink", flags: ack, peer: foreignPeer, peers: 1})
			add(n, atDriver, packetCase{name: "at the driver, first of a flow, before TC", key: "driver/first", flows: allFlows, program: "uplink", flags: syn, sent: 1}) // not of the flow that is there: it would end that
		}
		add(n, atDriver, packetCase{name: "at the driver, repeated", key: "driver/repeat/" + key, flows: flows, program: "uplink", flags: ack})
	}
	return cases, closeAll, nil
}

// reportDriver adds what packets of flows to other nodes cost.
func (b *bench) reportDriver(cases []*packetCase) {
	t := table{
		Title:  "A packet of a flow to another node, at TC and at a driver: run time of the program, TCP over IPv4, ns",
		Header: []string{"packet", "flows", "net", "quartiles", "least", "repeated"},
		Note: "As above. At TC one packet meets two programs, where it comes and where it leaves; the first asks the kernel for the next hop (--redirect), once a second. Of all that follow it repeats what both did to the one before, and the other program, which is not in that line, lets it pass. What it takes to make a packet of a frame " +
			"comes on top there, and not at a driver (--xdp), which an empty program stands for. What is carried keeps nothing of a connection, so that each packet may as well be the first. Repeated is the share of the packets that were; " +
			"before each batch all entries are made as young as if TC had just seen a packet of each.",
	}
	for _, c := range cases {
		if c.base == nil || !c.routed {
			continue
		}
		share := ""
		if c.repeated > 0 || c.atDriver {
			share = fmt.Sprintf("%.1f %%", 100*float64(c.repeated)/float64(c.sent))
		}
		t.row(append(append([]string{c.name}, b.packetFigures(c)...), share)...)
	}
	b.report.table(t)
}

// driverAims compares what a packet costs at a driver with what was asked for.
func (r *report) driverAims(t *table) {
	r.aim(t, "a packet for no Service at a driver", "packets/driver/foreign", 12, "%.0f ns")
	r.aim(t, "the first packet of a flow at a driver, before TC", "packets/driver/first", 25, "%.0f ns")
	aims := map[int]float64{1: 40, 1 << 10: 45, 1 << 16: 130, 1 << 20: 250}
	for _, flows := range r.plan.flows {
		r.aim(t, "a packet that a driver carries, of "+count(flows), fmt.Sprintf("packets/driver/carry/%d", flows), 60, "%.0f ns")
		if aims[flows] != 0 {
			r.aim(t, "a packet that a driver repeats, of "+count(flows), fmt.Sprintf("packets/driver/repeat/%d", flows), aims[flows], "%.0f ns")
		}
	}
}

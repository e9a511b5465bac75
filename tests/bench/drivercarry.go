package main

import (
	"fmt"

	"github.com/headgate/headgate/pkg/lb"
)

// loopbackIndex is the device on which test runs have a driver see packets.
const loopbackIndex = 1

// carriedPackets are those for a carried frontend, at a driver. Nothing is kept of their
// flows. The first meets no program.
func (b *bench) carriedPackets(name string, object []byte) (cases []*packetCase, closeAll func(), err error) {
	n, err := b.carriedNode("carried"+name, object, true)
	if err != nil {
		return nil, func() {}, err
	}
	add := func(c packetCase) {
		c.node, c.atDriver, c.carried, c.routed, c.protocol = n, true, true, true, lb.TCP
		c.peer = n.frontend
		if len(cases) > 0 {
			c.base = cases[0]
		}
		cases = append(cases, &c)
	}
	add(packetCase{name: "no program", flows: 1, flags: ack})
	for _, flows := range b.plan.flows {
		add(packetCase{name: "at the driver, carried", key: fmt.Sprintf("driver/carry/%d", flows), flows: flows, program: "uplink", flags: ack})
	}
	add(packetCase{name: "at the driver, carried, SYN", key: "driver/carry/syn", flows: allFlows, program: "uplink", flags: syn})
	return cases, n.close, nil
}

// findWays has TC carry packets to all nodes, so that a driver knows the way to each.
func (n *packetNode) findWays(g *group) (err error) {
	if n.express, err = openExpress(g.root); err != nil {
		return err
	}
	for flow := range carriedPeers * 32 {
		if _, err := n.passBy(loopbackIndex, n.ask(flow*routedBackends, ack)); err != nil { // to one address
			return err
		}
	}
	if n.express.renew(false); n.express.there < carriedPeers {
		return fmt.Errorf("a driver knows the way to %d of %d nodes", n.express.there, carriedPeers)
	}
	return nil
}

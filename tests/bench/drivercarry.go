package main

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// How many backends a carried Service has, and on how many other nodes.
const (
	carriedBackends = 100
	carriedPeers    = 40
)

// loopbackIndex is the device on which test runs have a driver see packets.
const loopbackIndex = 1

// carriedPackets are those for a carried frontend, at a driver. Nothing is kept of their
// flows. The first meets no program.
func (b *bench) carriedPackets(name string, object []byte) (cases []*packetCase, closeAll func(), err error) {
	n, err := b.carriedNode("carried"+name, object)
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

// carriedNode is a node that carries the packets of a Service to others.
func (b *bench) carriedNode(name string, object []byte) (*packetNode, error) {
	g, err := b.newGroup(name)
	if err != nil {
		return nil, err
	}
	g.root = filepath.Join(b.bpffs, name)
	cfg := g.config(object)
	cfg.Flows, cfg.Redirect, cfg.XDP, cfg.Carrying, cfg.Sizes.Peers = 1<<19, true, true, true, 2*carriedPeers
	n, err := newPacketNode(cfg)
	if err != nil {
		return nil, err
	}
	nodes := netip.AddrFrom4([4]byte{172, byte(16 + b.uplinks), 0, 0})
	n.frontend = netip.AddrPortFrom(nth(tcp4.service, 1), servicePort)
	if err := errors.Join(n.addUplink(b, g, nodes), n.bringInCarried(nodes)); err != nil {
		n.close()
		return nil, err
	}
	if err := errors.Join(n.open(g.root, "device_in", "device_out", "uplink"), n.findWays(g)); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// bringInCarried brings the Service into the kernel, with the nodes of its backends.
func (n *packetNode) bringInCarried(nodes netip.Addr) error {
	f := frontends(tcp4, 0, carriedBackends)[0]
	f.Kind, f.Algorithm, f.TableSize, f.Carried, f.Homes = lb.LoadBalancerIP, lb.Stable, 8089, true, map[lb.AddrPort]string{}
	for i, m := range f.Members {
		f.Homes[m] = fmt.Sprint("node", i%carriedPeers)
	}
	peers := map[string]plan.Node{"here": {}}
	for i := range carriedPeers {
		peers[fmt.Sprint("node", i)] = plan.Node{
			Peer:  plan.Peer{Theirs: nth(nodes, i+1), Ours: nth(nodes, 1<<16-2), Ring: plan.RingOf(fmt.Sprint(i)), MTU: 1500, Usable: true},
			Addrs: []netip.Addr{nth(nodes, i+1)},
		}
	}
	p := plan.New(plan.Sizes{})
	ops := p.SetPeers("here", peers)
	more, err := p.Set(serviceName(0), []lb.Frontend{f})
	if err != nil {
		return err
	}
	d, err := datapath.Open(n.cfg)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Reserve(p.Needs()); err != nil {
		return err
	}
	if _, err := d.Apply(append(ops, more...)); err != nil {
		return err
	}
	return errors.Join(d.Attach(), d.SetDevices([]plan.Device{n.uplink}))
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

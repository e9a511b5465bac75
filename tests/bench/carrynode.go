package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// How many backends a carried Service has, and on how many other nodes.
const (
	carriedBackends = 100
	carriedPeers    = 40
)

// neighbours are nodes that carry to each other, as one of them knows them.
type neighbours struct {
	here  string // its name
	nodes map[string]plan.Node
}

// nodeAt is one of them, which is reached from ours.
func nodeAt(name string, theirs, ours netip.Addr) plan.Node {
	return plan.Node{
		Peer:  plan.Peer{Theirs: theirs, Ours: ours, Ring: plan.RingOf(name), MTU: 1500, Usable: true},
		Addrs: []netip.Addr{theirs},
	}
}

// own are the addresses of the node itself.
func (n neighbours) own() map[netip.Addr]plan.AddressKind {
	return map[netip.Addr]plan.AddressKind{n.nodes[n.here].Ours: plan.NodeAddress}
}

// carriedFrontend is one whose packets are carried to the nodes of its backends, by number.
func carriedFrontend(f flavour, service, backends int, home func(backend int) string) lb.Frontend {
	one := frontends(f, service, backends)[0]
	one.Kind, one.Algorithm, one.TableSize, one.Carried, one.Homes = lb.LoadBalancerIP, lb.Stable, 8089, true, map[lb.AddrPort]string{}
	for i, m := range one.Members {
		one.Homes[m] = home(i)
	}
	return one
}

// bringIn brings Services, each with one frontend, into the kernel of one of the nodes, and
// programs to its devices.
func (n neighbours) bringIn(cfg datapath.Config, services []lb.Frontend, devices ...plan.Device) error {
	p := plan.New(plan.Sizes{})
	ops := append(p.SetNodeAddresses(n.own()), p.SetPeers(n.here, n.nodes)...)
	for i, f := range services {
		more, err := p.Set(serviceName(i), []lb.Frontend{f})
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	d, err := datapath.Open(cfg)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Reserve(p.Needs()); err != nil {
		return err
	}
	if _, err := d.Apply(ops); err != nil {
		return err
	}
	return errors.Join(d.Attach(), d.SetDevices(devices))
}

// carryingNode is a node that carries, without anything in the kernel yet.
func (b *bench) carryingNode(name string, object []byte, change func(*datapath.Config)) (*packetNode, *group, error) {
	g, err := b.newGroup(name)
	if err != nil {
		return nil, nil, err
	}
	g.root = filepath.Join(b.bpffs, name)
	cfg := g.config(object)
	cfg.Flows, cfg.Carrying, cfg.Sizes.Peers = 1<<19, true, 2*carriedPeers
	change(&cfg)
	n, err := newPacketNode(cfg)
	return n, g, err
}

// carriedNode is a node that carries the packets of a Service to others; driven says whether its
// drivers do so, too.
func (b *bench) carriedNode(name string, object []byte, driven bool) (*packetNode, error) {
	n, g, err := b.carryingNode(name, object, func(c *datapath.Config) { c.Redirect, c.XDP = driven, driven })
	if err != nil {
		return nil, err
	}
	nodes := netip.AddrFrom4([4]byte{172, byte(16 + b.uplinks), 0, 0})
	ours := nth(nodes, 1<<16-2)
	all := neighbours{"here", map[string]plan.Node{"here": nodeAt("here", ours, ours)}}
	for i := range carriedPeers {
		name := fmt.Sprint("node", i)
		all.nodes[name] = nodeAt(name, nth(nodes, i+1), ours)
	}
	f := carriedFrontend(tcp4, 0, carriedBackends, func(i int) string { return fmt.Sprint("node", i%carriedPeers) })
	n.frontend = netip.AddrPortFrom(f.Addr, f.AddrPort.Port)
	if err = n.addUplink(b, g, nodes); err == nil {
		err = all.bringIn(n.cfg, []lb.Frontend{f}, n.uplink)
	}
	if err == nil {
		err = n.open(g.root, map[bool][]string{false: {"device_in"}, true: {"device_in", "device_out", "uplink"}}[driven]...)
	}
	if err == nil && driven {
		err = n.findWays(g)
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// homeNode is the home of a Service's backend, with flows that are carried to it.
func (b *bench) homeNode(name string, object []byte, flows int) (*packetNode, error) {
	n, g, err := b.carryingNode(name, object, func(c *datapath.Config) { c.Flows = uint32(max(1<<18, flows*5/2)) })
	if err != nil {
		return nil, err
	}
	ours, theirs := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	all := neighbours{"here", map[string]plan.Node{"here": nodeAt("here", ours, ours), "there": nodeAt("there", theirs, ours)}}
	f := carriedFrontend(tcp4, 0, 1, func(int) string { return "here" })
	n.frontend, n.backend = netip.AddrPortFrom(f.Addr, f.AddrPort.Port), netip.AddrPortFrom(f.Members[0].Addr, f.Members[0].Port)
	n.outer = outerHeader(theirs, ours)
	if err = all.bringIn(n.cfg, []lb.Frontend{f}); err == nil {
		err = n.open(g.root, "device_in", "device_out")
	}
	if err == nil {
		err = n.establish(b, flows, n.frontend, n.backend)
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// outerHeader is the header of IP in IP from one node to another, before a packet of 40 bytes.
func outerHeader(from, to netip.Addr) []byte {
	h := []byte{0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 4, 0, 0}
	return append(append(h, from.AsSlice()...), to.AsSlice()...)
}

// isCarried makes sure that the node carries the next packet of a case to another.
func (c *packetCase) isCarried() error {
	if err := c.ready(); err != nil {
		return err
	}
	v, out, err := c.node.replay.Replay.Test(c.frame)
	if err != nil {
		return err
	}
	ours := c.node.uplink.IP4.AsSlice()
	if len(out) != len(c.frame) || out[14+9] != 4 || !bytes.Equal(out[14+12:14+16], ours) {
		return fmt.Errorf("a packet is not carried: verdict %d, %d bytes %x", v, len(out), out[:80])
	}
	return nil
}

// At TC a frame is longer than its packet by what programs take off it in so many runs; then
// there is a new one.
const outerRuns = 64

// isCovered says whether packets come within an outer header.
func (c *packetCase) isCovered() bool { return c.node.outer != nil && !c.fromPeer }

// withOuter makes a packet a frame of which outer headers can be taken off, as before each run one is
// that the program has put before it.
func (c *packetCase) withOuter(packet []byte) []byte {
	if c.atDriver || !c.carried && !c.isCovered() {
		return packet
	}
	room := make([]byte, outerRuns*20)
	if c.carried {
		packet = slices.Insert(packet, 14, room[:20]...)
	}
	return append(packet, room...)
}

// readyOuter tells the program that replays packets of outer headers.
func (c *packetCase) readyOuter() error {
	r := c.node.replay
	var frameBytes, outerBytes, covered uint32
	switch {
	case c.carried && c.atDriver:
		frameBytes = uint32(len(c.frame))
	case c.carried:
		outerBytes = 20
	case c.isCovered():
		covered = 1
	}
	var headers [14 + 20 + 20 + 20]byte
	packet := c.template()
	copy(headers[copy(headers[:], packet[:14]):], c.node.outer)
	copy(headers[14+20:], packet[14:])
	return errors.Join(r.FrameBytes.Set(frameBytes), r.OuterBytes.Set(outerBytes), r.Covered.Set(covered), r.Headers.Set(headers))
}

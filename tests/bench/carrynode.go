package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/peers"
	"github.com/headgate/headgate/pkg/plan"
)

// How many backends a carried Service has, and on how many other nodes.
const (
	carriedBackends = 100
	carriedPeers    = 40
)

// outerBytes is how long an outer header between nodes is: IPv4, UDP and the proof.
const outerBytes = 20 + 8 + 8

// carryKeys are the keys of proofs.
var carryKeys = [2][2]uint64{{0x0706050403020100, 0x0f0e0d0c0b0a0908}, {0x1716151413121110, 0x1f1e1d1c1b1a1918}}

// carrying has a node carry.
func carrying(c *datapath.Config) {
	c.Carrying, c.CarryPort, c.CarryKeys, c.Sizes.Peers = true, peers.Port, carryKeys, 2*carriedPeers
}

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
	cfg.Flows = 1 << 19
	carrying(&cfg)
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

// outerHeader is the header of UDP from one node to another, before a packet of 40 bytes. The program
// that replays packets writes the proof.
func outerHeader(from, to netip.Addr) []byte {
	h := []byte{0x45, 0, 0, outerBytes + 40, 0, 0, 0x40, 0, 64, 17, 0, 0}
	h = append(append(h, from.AsSlice()...), to.AsSlice()...)
	h = binary.BigEndian.AppendUint16(append(h, 0xc0, 0), peers.Port)
	return append(append(h, 0, outerBytes-20+40, 0, 0), make([]byte, 8)...)
}

// last replays packets of a case, and returns the frame of the last one.
func (c *packetCase) last() (verdict uint32, out []byte, err error) {
	if err := c.ready(); err != nil {
		return 0, nil, err
	}
	replay := c.node.replay.Replay
	if c.atDriver {
		replay = c.node.replay.DriverReplay
	}
	o := ebpf.RunOptions{Data: c.frame, DataOut: make([]byte, len(c.frame)+256), Repeat: outerRuns}
	verdict, err = replay.Run(&o)
	return verdict, o.DataOut, err
}

// isCarried makes sure that the node carries packets of a case to another.
func (c *packetCase) isCarried() error {
	v, out, err := c.last()
	if err != nil {
		return err
	}
	ours, want := c.node.uplink.IP4.AsSlice(), len(c.frame)
	if c.atDriver {
		want += outerBytes
	}
	if len(out) != want || out[14+9] != 17 || !bytes.Equal(out[14+12:14+16], ours) || binary.BigEndian.Uint16(out[14+22:]) != peers.Port {
		return fmt.Errorf("a packet is not carried over UDP: verdict %d, %d bytes %x", v, len(out), out[:min(len(out), 90)])
	}
	return nil
}

// isUncovered makes sure that the node takes packets of a case as carried, each of them.
func (c *packetCase) isUncovered() error {
	v, out, err := c.last()
	if err != nil {
		return err
	}
	to := c.node.backend.Addr().AsSlice()
	if len(out) != len(c.frame)-outerRuns*outerBytes || out[14+9] != byte(c.protocol) || !bytes.Equal(out[14+16:14+20], to) {
		return fmt.Errorf("a packet is not taken as carried: verdict %d, %d bytes %x", v, len(out), out[:min(len(out), 90)])
	}
	return nil
}

// At TC a frame is longer than its packet by what programs take off it in so many runs; then
// there is a new one. It stays within the MTU: programs cut what is longer.
const outerRuns = 36

// isCovered says whether packets come within an outer header.
func (c *packetCase) isCovered() bool { return c.node.outer != nil && !c.fromPeer }

// withOuter makes a packet a frame of which outer headers can be taken off, as before each run one is
// that the program has put before it.
func (c *packetCase) withOuter(packet []byte) []byte {
	if c.atDriver || !c.carried && !c.isCovered() {
		return packet
	}
	room := make([]byte, outerRuns*outerBytes)
	if c.carried {
		packet = slices.Insert(packet, 14, room[:outerBytes]...)
	}
	return append(packet, room...)
}

// readyOuter tells the program that replays packets of outer headers.
func (c *packetCase) readyOuter() error {
	r := c.node.replay
	var frameBytes, taken, covered uint32
	switch {
	case c.carried && c.atDriver:
		frameBytes = uint32(len(c.frame))
	case c.carried:
		taken = outerBytes
	case c.isCovered():
		covered = 1
	}
	var headers [14 + outerBytes + 40]byte
	packet := c.template()
	copy(headers[copy(headers[:], packet[:14]):], c.node.outer)
	copy(headers[14+outerBytes:], packet[14:])
	return errors.Join(r.FrameBytes.Set(frameBytes), r.OuterBytes.Set(taken), r.Covered.Set(covered), r.ProofKey.Set(carryKeys[0]), r.Headers.Set(headers))
}

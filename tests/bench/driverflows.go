package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// routedBackends is how many Services there are with a backend each on another node: with
// fewer there are more flows than source ports. A power of two.
const routedBackends = 64

var foreignPeer = netip.AddrPortFrom(nth(foreignNet4, 1), servicePort)

// routedNode is one as usual.
func (b *bench) routedNode(name string, object []byte, flows int, driven bool) (*packetNode, error) {
	return b.routedNodeOf(name, object, flows, driven, func(*datapath.Config) {})
}

// routedNodeOf is a node with flows to backends on other nodes, which leave by an uplink of
// its own, or whose driver repeats what becomes of them, with a configuration that is changed.
func (b *bench) routedNodeOf(name string, object []byte, flows int, driven bool, change func(*datapath.Config)) (*packetNode, error) {
	g, err := b.newGroup(name)
	if err != nil {
		return nil, err
	}
	g.root = filepath.Join(b.bpffs, name)
	cfg := g.config(object)
	cfg.Flows, cfg.Redirect, cfg.XDP = uint32(max(1<<19, flows*5)), true, driven // four directions of each flow
	change(&cfg)
	n, err := newPacketNode(cfg)
	if err != nil {
		return nil, err
	}
	f := tcp4
	f.backend = netip.AddrFrom4([4]byte{172, byte(16 + b.uplinks), 0, 0})
	n.frontend, n.backend = netip.AddrPortFrom(nth(f.service, 1), servicePort), netip.AddrPortFrom(nth(f.backend, 1), backendPort)
	if err := n.addUplink(b, g, f.backend); err != nil {
		n.close()
		return nil, err
	}
	of := func(i int) []lb.Frontend { return frontends(f, i, 1) }
	if err := bringIn(cfg, routedBackends, of, n.uplink); err != nil {
		n.close()
		return nil, err
	}
	programs := []string{"device_in", "device_out"}
	if driven {
		programs = append(programs, "uplink")
	}
	if err := errors.Join(n.open(g.root, programs...), n.establishRouted(b, g, flows, driven)); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// addUplink makes the device by which backends are reached. Its driver takes frames, since
// there is a program at its peer.
func (n *packetNode) addUplink(b *bench, g *group, backends netip.Addr) error {
	name := fmt.Sprintf("bench-up%d", b.uplinks)
	b.uplinks++
	l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}
	if err := netlink.LinkAdd(l); err != nil {
		return fmt.Errorf("make device %s: %w", name, err)
	}
	n.uplink = plan.Device{Index: uint32(l.Index), Name: name, IP4: nth(backends, 1<<16-2), XDP: true}
	peer, err := netlink.LinkByName(name + "-peer")
	if err != nil {
		return err
	}
	end, err := link.AttachXDP(link.XDPOptions{Program: n.replay.DriverNothing, Interface: peer.Attrs().Index})
	if err != nil {
		return fmt.Errorf("attach to device %s-peer: %w", name, err)
	}
	g.closers = append(g.closers, end.Close)
	if err := errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644), netlink.LinkSetUp(l), netlink.LinkSetUp(peer)); err != nil {
		return err
	}
	to := &net.IPNet{IP: backends.AsSlice(), Mask: net.CIDRMask(16, 32)}
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: l.Index, Dst: to, Scope: netlink.SCOPE_LINK}); err != nil {
		return fmt.Errorf("add route to %s: %w", to, err)
	}
	for i := range routedBackends {
		if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Index, IP: nth(backends, i+1).AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}, State: unix.NUD_PERMANENT}); err != nil {
			return err
		}
	}
	return nil
}

// establishRouted takes each flow through its handshake, at both devices.
func (n *packetNode) establishRouted(b *bench, g *group, flows int, driven bool) error {
	if err := b.step("establish %s flows to other nodes", count(flows)); err != nil {
		return err
	}
	var err error
	if n.express, err = openExpress(g.root); err != nil {
		return err
	}
	for flow := range flows {
		if err := n.handshake(flow); err != nil {
			return fmt.Errorf("flow %d: %w", flow, err)
		}
		if flow%(1<<10) == 0 { // or later ones take the places of the first
			n.express.renew(false)
		}
	}
	if n.express.renew(false); !driven && n.express.there == 0 { // an object that does not repeat at TC
		return b.ctx.Err()
	}
	return errors.Join(b.ctx.Err(), n.settleRouted(flows))
}

// settleRouted sees to it that nearly all flows have an entry. The first ones have none, as
// long as the device is about to come up.
func (n *packetNode) settleRouted(flows int) error {
	for range 5 {
		if n.express.renew(false); n.express.there*10 >= flows*9 {
			return nil
		}
		time.Sleep(300 * time.Millisecond)
		for flow := range min(flows, 1<<10) {
			if _, err := n.pass(n.ask(flow, ack)); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("of %d flows %d are repeated", flows, n.express.there)
}

// ask is a packet of a flow from the client.
func (n *packetNode) ask(flow int, flags byte) []byte {
	c := packetCase{protocol: lb.TCP, flags: flags}
	frame := c.template()
	binary.BigEndian.PutUint32(frame[26:], uint32(addr4(clientNet4)+flow/replayPorts))
	binary.BigEndian.PutUint32(frame[30:], uint32(addr4(n.frontend.Addr())+flow&(routedBackends-1)))
	binary.BigEndian.PutUint16(frame[34:], uint16(replayPorts+flow%replayPorts))
	binary.BigEndian.PutUint16(frame[36:], servicePort)
	return frame
}

// handshake takes a flow through one.
func (n *packetNode) handshake(flow int) error {
	sent, err := n.pass(n.ask(flow, syn))
	if err != nil {
		return err
	}
	c := packetCase{protocol: lb.TCP, fromPeer: true, flags: syn | ack}
	answer := c.template()
	copy(answer[26:], sent[30:34])
	copy(answer[30:], sent[26:30])
	copy(answer[34:], sent[36:38])
	copy(answer[36:], sent[34:36])
	if _, err := n.pass(answer); err != nil {
		return err
	}
	_, err = n.pass(n.ask(flow, ack))
	return err
}

// replayPorts is how many ports a client of the program that replays packets has, and the first.
const replayPorts = 32768

func addr4(a netip.Addr) int {
	b := a.As4()
	return int(binary.BigEndian.Uint32(b[:]))
}

// pass gives a frame to the programs of the uplink, in and out.
func (n *packetNode) pass(frame []byte) ([]byte, error) {
	return n.passBy(n.uplink.Index, frame)
}

// passBy gives it to those of a device.
func (n *packetNode) passBy(device uint32, frame []byte) ([]byte, error) {
	for _, program := range []string{"device_in", "device_out"} {
		var context [192]byte // struct __sk_buff

		binary.NativeEndian.PutUint32(context[36:], n.uplink.Index) // ingress_ifindex: the node itself forwards nothing
		binary.NativeEndian.PutUint32(context[40:], device)
		opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: context}
		verdict, err := n.programs[program].Run(&opts)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", program, err)
		}
		if verdict == tcShot {
			return nil, fmt.Errorf("%s drops the packet", program)
		}
		frame = opts.DataOut
	}
	return frame, nil
}

const tcShot = 2

// expressEntries are what is repeated, in memory that is shared with the kernel.
type expressEntries struct {
	memory     []byte
	size       uint32 // of an entry
	noted, mtu uint32 // where they stand in it
	there      int    // entries
	counters   *ebpf.Map
	repeated   uint32 // where the number of packets that were repeated stands in them
	carried    uint32 // and of those that were carried
}

func openExpress(root string) (*expressEntries, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(root, "maps", "express"), nil)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	e := &expressEntries{}
	if e.counters, err = ebpf.LoadPinnedMap(filepath.Join(root, "maps", "counters"), nil); err != nil {
		return nil, err
	}
	if e.size, err = where(m, "express", map[string]*uint32{"noted": &e.noted, "mtu": &e.mtu}); err != nil {
		return nil, err
	}
	if _, err := where(e.counters, "counters", map[string]*uint32{"flow_repeated": &e.repeated, "carried_at_driver": &e.carried}); err != nil {
		return nil, err
	}
	e.memory, err = unix.Mmap(m.FD(), 0, int(m.MaxEntries()*m.ValueSize()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return e, err
}

// where finds out where members of a struct stand that a map has, and its size.
func where(m *ebpf.Map, of string, members map[string]*uint32) (size uint32, err error) {
	h, err := m.Handle()
	if err != nil {
		return 0, err
	}
	defer h.Close()
	types, err := h.Spec(nil)
	if err != nil {
		return 0, err
	}
	var s *btf.Struct
	if err := types.TypeByName(of, &s); err != nil {
		return 0, err
	}
	for _, member := range s.Members {
		if at := members[member.Name]; at != nil {
			*at = member.Offset.Bytes()
		}
	}
	return s.Size, nil
}

// sent counts the packets that were repeated or carried, by all CPUs.
func (e *expressEntries) sent() (n uint64, err error) {
	if e == nil {
		return 0, nil
	}
	var perCPU [][]byte
	if err := e.counters.Lookup(uint32(0), &perCPU); err != nil {
		return 0, err
	}
	for _, b := range perCPU {
		n += binary.NativeEndian.Uint64(b[e.repeated:]) + binary.NativeEndian.Uint64(b[e.carried:])
	}
	return n, nil
}

// flowTime is the present as programs note it.
func flowTime() uint32 {
	const noteShift = 28 // FLOW_TIME_NS_SHIFT
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now)
	return uint32(now.Nano() >> noteShift)
}

// renew makes all entries as young as can be, or too old to be repeated, and counts them.
func (e *expressEntries) renew(old bool) {
	noted := flowTime()
	if old {
		noted -= 8 // two seconds
	}
	e.there = 0
	for at := uint32(0); int(at+e.size) <= len(e.memory); at += e.size {
		if *(*uint32)(unsafe.Pointer(&e.memory[at+e.mtu])) == 0 {
			continue
		}
		*(*uint32)(unsafe.Pointer(&e.memory[at+e.noted])) = noted
		e.there++
	}
}

func (e *expressEntries) close() {
	if e != nil {
		e.counters.Close()
		_ = unix.Munmap(e.memory)
	}
}

// stayOnOneCPU keeps the caller on one CPU: what a driver repeats is of its own.
func stayOnOneCPU() (leave func(), err error) {
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	return func() { _ = unix.SchedSetaffinity(0, &all); runtime.UnlockOSThread() }, unix.SchedSetaffinity(0, &one)
}

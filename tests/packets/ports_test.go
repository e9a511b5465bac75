package packets

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestASilentConnectionKeepsItsPort has a connection be silent for three hours, and another client
// come by the same port.
func TestASilentConnectionKeepsItsPort(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: aSilentConnectionKeepsItsPort}, cast{b, r, lb.TCP}) })
	}
}

func aSilentConnectionKeepsItsPort(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	first, second := c.crowdFrom(c.client, 20000), c.crowdFrom(c.other, 20000)
	first.again(t)
	c.age(t, 3*3600)
	if second.again(t); len(first.open) != 1 || len(second.open) != 1 {
		t.Fatal("there is no port")
	}
	one, other := first.open[0], second.open[0]
	if one.left.src == other.left.src {
		t.Errorf("%s and %s both leave as %s", one.sent.src, other.sent.src, one.left.src)
	}
	a := one.left.answer("A", []byte("late"))
	c.becomes(t, "the backend goes on", in, tunnel, a, a.to(backend, one.sent.src))
	if !first.keeps(t) || !second.keeps(t) {
		t.Error("a connection does not go on")
	}
}

// TestTheLongestSilentConnectionGivesUpItsPort has connections that hold all ports be silent for
// hours, and the one that was silent for longest be of a network with few ports.
func TestTheLongestSilentConnectionGivesUpItsPort(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.SNATPorts = datapath.Ports{First: 16384, Last: 16399} })
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: theLongestSilentGivesUp}, cast{b, r, lb.TCP}) })
	}
}

func theLongestSilentGivesUp(t *testing.T, c cast) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
	next := neighbour(c.client) // of another network
	silent, greedy, late := c.crowdFrom(next, 20000), c.crowdFrom(c.client, 30000), c.crowdFrom(neighbour(next), 40000)
	silent.again(t)
	for greedy.again(t) {
		if len(greedy.open) > 15 {
			t.Fatal("there is always a port")
		}
	}
	c.age(t, 3600)
	if !greedy.keeps(t) {
		t.Error("a connection does not go on after an hour")
	}
	c.age(t, 2*3600)
	if !late.again(t) || late.open[0].left.src != silent.open[0].left.src {
		t.Error("the connection that was silent for three hours does not give up its port")
	}
	if !greedy.keeps(t) || !late.keeps(t) {
		t.Error("another connection does not go on")
	}
}

// TestOlderConnectionsGoOn has somebody else speak to a backend before a flow would do so by the
// same address and port: a client itself, a socket of the node, or a pod by rules that the kernel
// follows.
func TestOlderConnectionsGoOn(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		b.remote = map[bool]netip.Addr{true: netip.MustParseAddr("10.244.2.77"), false: netip.MustParseAddr("fd00:10:244:2::77")}[b.client.Is4()]
		b.local = map[bool]netip.Addr{true: netip.MustParseAddr("10.244.1.77"), false: netip.MustParseAddr("fd00:10:244:1::77")}[b.client.Is4()]
		for _, p := range []lb.Protocol{lb.TCP, lb.UDP} {
			c := cast{b, r, p}
			t.Run(b.family()+" "+p.String()+" socket", func(t *testing.T) { r.tell(t, story{tell: aSocketKeepsItsPort}, c) })
			t.Run(b.family()+" "+p.String()+" tracked", func(t *testing.T) { r.tell(t, story{tell: aTrackedConnectionKeepsItsPort}, c) })
		}
		t.Run(b.family()+" again", func(t *testing.T) { r.tell(t, story{tell: aClientThatComesAgainKeepsItsPort}, cast{b, r, lb.TCP}) })
		t.Run(b.family()+" direct", func(t *testing.T) { r.tell(t, story{tell: aDirectConnectionGoesOn}, cast{b, r, lb.TCP}) })
		t.Run(b.family()+" listener", func(t *testing.T) { r.tell(t, story{tell: aListenerHasNoPort}, cast{b, r, lb.TCP}) })
	}
}

// TestAFlowIsRefusedWhereOthersHaveThePorts has connections that the kernel tracks hold all source ports.
func TestAFlowIsRefusedWhereOthersHaveThePorts(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.SNATPorts = datapath.Ports{First: 16384, Last: 16399} })
	for _, b := range []book{v4, v6} {
		for _, p := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(b.family()+" "+p.String(), func(t *testing.T) { r.tell(t, story{tell: othersHaveThePorts}, cast{b, r, p}) })
		}
	}
}

func othersHaveThePorts(t *testing.T, c cast) {
	vip, backend := at(c.vip, 80), at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	for port := uint16(16384); port < 16400; port++ {
		c.tracked(t, at(c.local, port), backend, at(c.tunnel, port))
	}
	p := c.packet(at(c.client, 16390), vip, 3)
	c.becomes(t, "a client comes", in, uplink, p, p.to(p.src, backend))
	if c.protocol == lb.TCP {
		c.isReset(t, "others have the ports", out, tunnel, p.to(p.src, backend))
	} else {
		c.refused(t, "others have the ports", out, tunnel, p.to(p.src, backend))
	}
	if n := c.flows(t); n != 2 {
		t.Errorf("there are %d directions of flows, want 2: none of the flow that was refused", n)
	}
	must(t, netlink.ConntrackTableFlush(netlink.ConntrackTable))
	c.becomes(t, "the ports are free", out, tunnel, p.to(p.src, backend), p.to(at(c.tunnel, 16390), backend))
}

// leavesBesides has a client come by a port that somebody else has towards the backend.
func (c cast) leavesBesides(t *testing.T, port uint16) {
	t.Helper()
	vip, backend, taken := at(c.vip, 80), at(c.remote, 8080), at(c.tunnel, port)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.packet(at(c.client, port), vip, 3)
	c.becomes(t, "a client comes", in, uplink, p, p.to(p.src, backend))
	left := c.comesOut(t, "and leaves", out, tunnel, p.to(p.src, backend))
	if left.src.Addr() != c.tunnel || left.src == taken || left.dst != backend {
		t.Errorf("it leaves as %s to %s", left.src, left.dst)
	}
	a := left.answer("SA", nil)
	c.becomes(t, "which is answered", in, tunnel, a, a.to(backend, p.src))
	c.becomes(t, "it goes on", out, tunnel, p.to(p.src, backend).with("A"), left.with("A"))
	old := c.packet(taken, backend, 3).with("A")
	c.untouched(t, "what is older goes on", out, tunnel, old)
	c.untouched(t, "and is answered", in, tunnel, old.answer("A", []byte("x")))
	if n := c.flows(t); c.protocol == lb.TCP && n != 4 {
		t.Errorf("there are %d directions of flows, want 4", n)
	}
}

func aSocketKeepsItsPort(t *testing.T, c cast) {
	c.connect(t, at(c.tunnel, 21000), at(c.remote, 8080))
	c.leavesBesides(t, 21000)
}

// connect connects a socket from one end to another, both on the loopback device, until the test ends.
func (c cast) connect(t *testing.T, from, to netip.AddrPort) {
	t.Helper()
	c.holdAddresses(t, from.Addr(), to.Addr())
	network, local := "udp", net.Addr(net.UDPAddrFromAddrPort(from))
	if c.protocol == lb.TCP {
		network, local = "tcp", net.TCPAddrFromAddrPort(from)
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(to))
		must(t, err)
		t.Cleanup(func() { l.Close() })
	}
	d := net.Dialer{LocalAddr: local}
	s, err := d.Dial(network, to.String())
	for deadline := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(deadline); { // the addresses are new
		time.Sleep(10 * time.Millisecond)
		s, err = d.Dial(network, to.String())
	}
	must(t, err)
	t.Cleanup(func() { s.Close() })
}

// holdAddresses has the loopback device hold addresses for as long as a test runs.
func (c cast) holdAddresses(t *testing.T, all ...netip.Addr) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	for _, a := range all {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Flags: unix.IFA_F_NODAD}
		must(t, netlink.AddrAdd(lo, addr))
		t.Cleanup(func() { _ = netlink.AddrDel(lo, addr) })
	}
}

func aListenerHasNoPort(t *testing.T, c cast) {
	own, vip, backend := at(c.tunnel, 21001), at(c.vip, 80), at(c.remote, 8080)
	c.holdAddresses(t, own.Addr())
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(own))
	must(t, err)
	defer l.Close()
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.packet(at(c.client, own.Port()), vip, 3)
	c.becomes(t, "a client comes", in, uplink, p, p.to(p.src, backend))
	c.becomes(t, "and leaves by its port", out, tunnel, p.to(p.src, backend), p.to(own, backend))
}

// tracked has the kernel track a connection from one end to another, which leaves by a third.
func (c cast) tracked(t *testing.T, from, to, by netip.AddrPort) {
	t.Helper()
	family := map[bool]netlink.InetFamily{true: unix.AF_INET, false: unix.AF_INET6}[from.Addr().Is4()]
	tuple := func(src, dst netip.AddrPort) netlink.IPTuple {
		return netlink.IPTuple{SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice(), SrcPort: src.Port(), DstPort: dst.Port(), Protocol: uint8(c.protocol)}
	}
	flow := &netlink.ConntrackFlow{FamilyType: uint8(family), Forward: tuple(from, to), Reverse: tuple(to, by), TimeOut: 100}
	if c.protocol == lb.TCP {
		flow.ProtoInfo = &netlink.ProtoInfoTCP{State: nl.TCP_CONNTRACK_ESTABLISHED}
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, family, flow); err != nil {
		t.Skipf("the kernel tracks no connections: %v", err)
	}
	t.Cleanup(func() { _ = netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}

func aTrackedConnectionKeepsItsPort(t *testing.T, c cast) {
	c.tracked(t, at(c.local, 5555), at(c.remote, 8080), at(c.tunnel, 21002))
	c.leavesBesides(t, 21002)
}

func aDirectConnectionGoesOn(t *testing.T, c cast) {
	vip, backend, client := at(c.vip, 80), at(c.local, 8080), at(c.client, 21003)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	direct := c.packet(client, backend, 0).with("A")
	c.tracked(t, client, backend, client)
	p := c.packet(client, vip, 0)
	moved := c.comesOut(t, "the client comes by the frontend", in, uplink, p)
	if moved.src == client || moved.src.Addr() != client.Addr() || moved.dst != backend {
		t.Errorf("it becomes %s to %s", moved.src, moved.dst)
	}
	a := moved.answer("SA", nil)
	c.becomes(t, "which is answered", out, uplink, a, a.to(vip, client))
	c.untouched(t, "what is older goes on", in, uplink, direct)
	c.untouched(t, "and is answered", out, uplink, direct.answer("A", []byte("x")))
}

// The kernel tracks the packets of a flow, too.
func aClientThatComesAgainKeepsItsPort(t *testing.T, c cast) {
	vip, backend, client := at(c.vip, 80), at(c.local, 8080), at(c.client, 21004)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	p := c.establish(t, client, vip, backend)
	c.tracked(t, client, backend, client)
	c.drop(t, in, p)
	c.becomes(t, "it comes again", in, uplink, p, p.to(client, backend))
}

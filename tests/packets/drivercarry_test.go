package packets

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// newDrivenFleet makes a fleet each node of which has drivers that carry, and compares what they do
// with what TC does. All nodes reach each other by the uplink of the first one.
func newDrivenFleet(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, 3, false, func(c *datapath.Config) { c.XDP = true })
	for _, n := range f.nodes {
		n.openDriver(t)
		n.sendsXDP(t, n.devices[uplink])
		n.sendsXDP(t, f.nodes[0].devices[uplink])
	}
	return f
}

// drivenCase is what becomes of a packet at the driver.
type drivenCase struct {
	name   string
	change func(p *packet)
	frame  func(frame []byte) []byte
	passed bool // left to TC
}

func (f *fleet) drivenCases(t *testing.T) []drivenCase {
	room := f.longest(t)
	sized := func(n int) func(*packet) { return func(p *packet) { p.payload = make([]byte, n) } }
	return []drivenCase{
		{name: "as it is"},
		{name: "nothing in it", change: sized(0)},
		{name: "an odd number of bytes", change: sized(701)},
		{name: "as long as there is room for", change: sized(room)},
		{name: "the same, not to be fragmented", change: sized(room), frame: whole},
		{name: "a byte longer", change: sized(room + 1), passed: true},
		{name: "SYN", change: func(p *packet) { p.flags = "S" }},
		{name: "FIN", change: func(p *packet) { p.flags = "FA" }},
		{name: "a reset", change: func(p *packet) { p.flags = "R" }},
		{name: "the most hops", change: func(p *packet) { p.ttl = 255 }},
		{name: "two hops left", change: func(p *packet) { p.ttl = 2 }},
		{name: "one hop left", change: func(p *packet) { p.ttl = 1 }, passed: true},
		{name: "no checksum", change: func(p *packet) { p.noChecksum = true }},
		{name: "padding", change: sized(0), frame: func(b []byte) []byte { return append(b, make([]byte, 9)...) }},
		{name: "marks", frame: func(b []byte) []byte { return f.marked(b, 0x2b) }},
		{name: "options of IPv4", change: func(p *packet) { p.options = []byte{1, 1, 1, 0} }, passed: f.client.Is4()},
		{name: "a fragment", change: func(p *packet) { p.payload = make([]byte, 64); p.fragment = &fragment{id: 7, size: 40} }, passed: true},
		{name: "a tag", frame: func(b []byte) []byte { return append(append(bytes.Clone(b[:12]), 0x81, 0, 0, 7), b[12:]...) }, passed: true},
		{name: "another port", change: func(p *packet) { p.dst = at(f.vip, 81) }, passed: true},
		{name: "from loopback", change: func(p *packet) { p.src = loopback(f.book, 40000) }, passed: true},
		{name: "from the node", change: func(p *packet) { p.src = at(nodeAddr(0, !f.client.Is4()), 40000) }, passed: true},
		{name: "from nobody", change: func(p *packet) { p.src = at(unspecifiedOf(f.client), 40000) }, passed: true},
	}
}

func unspecifiedOf(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// marked gives a frame a DSCP and ECN.
func (f *fleet) marked(frame []byte, tos byte) []byte {
	h := bytes.Clone(frame)[ethernetLen:]
	if f.client.Is4() {
		h[1] = tos
		binary.BigEndian.PutUint16(h[10:], 0)
		binary.BigEndian.PutUint16(h[10:], sum16(h[:20]))
	} else {
		h[0], h[1] = 0x60|tos>>4, tos<<4
	}
	return append(bytes.Clone(frame[:ethernetLen]), h...)
}

// Which packets the driver carries, a SYN, too, and what it counts.
func theDriverCarries(t *testing.T, f *fleet) {
	stayOnOneCPU(t)
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		f.protocol = protocol
		f.serve(t, 2)
		for _, c := range f.drivenCases(t) {
			f.isDriven(t, c)
		}
		f.countsWhatItCarries(t)
	}
}

func (f *fleet) isDriven(t *testing.T, c drivenCase) {
	t.Helper()
	p := f.packet(40000, "A", 10)
	if c.change != nil {
		c.change(&p)
	}
	frame := p.frame(t)
	if c.frame != nil {
		frame = c.frame(frame)
	}
	n := f.nodes[0]
	sent := n.driver.sent
	for range 10 { // the way to the peer ends a second after it was found
		n.run(t, in, uplink, f.packet(40001, "A", 0).frame(t))
		sent = n.driver.sent
		n.run(t, in, uplink, frame)
		if n.driver.sent > sent {
			break
		}
	}
	if got := n.driver.sent == sent; got != c.passed {
		t.Errorf("%s: left to TC: %v", c.name, got)
	}
}

// countsWhatItCarries compares what the driver counts of a peer with what TC does.
func (f *fleet) countsWhatItCarries(t *testing.T) {
	n := f.nodes[0]
	reader, err := n.dp.Reader()
	must(t, err)
	defer reader.Close()
	counted := func(give func()) (c datapath.PeerCounts) {
		was, err := reader.PeerCounts(n.peer(1))
		must(t, err)
		give()
		c, err = reader.PeerCounts(n.peer(1))
		must(t, err)
		return datapath.PeerCounts{
			Carried: c.Carried - was.Carried, CarriedBytes: c.CarriedBytes - was.CarriedBytes,
			CarriedSYN: c.CarriedSYN - was.CarriedSYN, CarriedTCP: c.CarriedTCP - was.CarriedTCP, PassedOn: c.PassedOn - was.PassedOn,
			SYNNetworks: c.SYNNetworks,
		}
	}
	for _, flags := range []string{"S", "A"} {
		frame := f.packet(40002, flags, 33).frame(t) // of no flow that this node has
		var sent []byte
		for range 10 { // the way to the peer ends a second after it was found
			atTC := counted(func() { _, err := n.try(in, uplink, frame); must(t, err) })
			n.counted = n.counters(t)
			atDriver := counted(func() { sent = n.repeated(t, frame) })
			if sent == nil {
				continue
			}
			n.wantCounts(t, map[string]uint64{"carried_at_driver": 1})
			if atDriver != atTC || atTC.Carried != 1 {
				t.Errorf("%s: the driver counts %+v, TC %+v", flags, atDriver, atTC)
			}
			break
		}
		if sent == nil {
			t.Errorf("%s: the driver carries nothing", flags)
		}
	}
}

// networksAreCounted has TC carry and the driver, each by itself.
func networksAreCounted(t *testing.T, f *fleet) {
	stayOnOneCPU(t)
	f.serve(t, 2)
	n := f.nodes[0]
	n.forgetCounts(t, n.peer(1))
	reader, err := n.dp.Reader()
	must(t, err)
	defer reader.Close()
	counted := func() int {
		c, err := reader.PeerCounts(n.peer(1))
		must(t, err)
		return c.SYNNetworks
	}
	atTC := func(frame []byte) bool {
		_, err := n.try(in, uplink, frame)
		must(t, err)
		return true
	}
	within := f.packet(40003, "A", 33).frame(t)
	for hook, carry := range map[string]func(frame []byte) bool{
		"TC": atTC, "driver": func(frame []byte) bool { return n.repeated(t, frame) != nil },
	} {
		carried := func(frame []byte) {
			for range 10 { // the way to the peer ends a second after it was found
				if carry(frame) {
					return
				}
				atTC(f.from(t, 0, 0))
			}
			t.Errorf("%s: nothing is carried", hook)
		}
		atTC(within)
		if got := counted(); got != 0 {
			t.Errorf("%s: of %d networks, before a connection begins", hook, got)
		}
		for client := range 4 {
			carried(f.from(t, 0, client))
		}
		if got := counted(); got != 1 {
			t.Errorf("%s: 4 clients are of %d networks, want one", hook, got)
		}
		for network := range 40 {
			carried(f.from(t, network, 0))
		}
		if got := counted(); got < 10 || got > 40 { // some share a bit
			t.Errorf("%s: 40 clients are of %d networks", hook, got)
		}
		carried(within)
		if got := counted(); got != 0 {
			t.Errorf("%s: of %d networks, after a packet within a connection", hook, got)
		}
	}
}

// forgetCounts has no CPU have carried anything to a peer: each would forget networks for itself alone.
func (n *fleetNode) forgetCounts(t *testing.T, peer uint32) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.root, "maps", "peer_counts"), nil)
	must(t, err)
	defer m.Close()
	none := make([][]byte, ebpf.MustPossibleCPU())
	for i := range none {
		none[i] = make([]byte, m.ValueSize())
	}
	must(t, m.Put(peer, none))
}

// from is what begins a connection, of a client of a network.
func (f *fleet) from(t *testing.T, network, client int) []byte {
	t.Helper()
	p := f.packet(40003, "S", 0)
	addr := f.client.AsSlice()
	of := len(addr) - 2 // IPv4: the last byte of a /24
	if !f.client.Is4() {
		of = 7 // that of a /64
	}
	addr[of], addr[of+1] = byte(network), byte(client+1)
	from, _ := netip.AddrFromSlice(addr)
	p.src = at(from, 40003)
	return p.frame(t)
}

// What the driver leaves to TC though it carried just that.
func theWayToAPeerEnds(t *testing.T, f *fleet) {
	stayOnOneCPU(t)
	n := f.nodes[0]
	for _, end := range []struct {
		what          string
		happens, mend func()
	}{
		{what: "a second passes", happens: func() { time.Sleep(1400 * time.Millisecond) }},
		{what: "something is taken away", happens: func() { n.say(t, "epoch", 1<<31) }, mend: func() { n.say(t, "epoch", 0) }},
		{what: "the peer is not usable", happens: func() { n.setUsable(t, f, 1, false) }, mend: func() { n.setUsable(t, f, 1, true) }},
		{what: "the slot's home is here", happens: func() { n.learn(t, 0) }, mend: func() { n.learn(t, 2) }},
		{what: "the peer has another address", happens: func() { n.move(t, f, 1, nodeAddr(9, f.overV6)) }, mend: func() { n.setUsable(t, f, 1, true) }},
		{what: "a flow begins here", happens: func() {
			n.setUsable(t, f, 1, false)
			n.run(t, in, uplink, f.packet(40000, "S", 0).frame(t))
			n.setUsable(t, f, 1, true)
		}},
	} {
		f.serve(t, 2)
		frame := f.packet(40000, "A", 10).frame(t)
		carries := func() bool { return n.repeated(t, frame) != nil }
		if !f.isCarriedOnce(t, frame, carries) {
			t.Fatalf("before %s nothing is carried", end.what)
		}
		end.happens()
		if carries() {
			t.Errorf("it is carried though %s", end.what)
		}
		if end.mend != nil {
			end.mend()
		}
	}
}

// isCarriedOnce says whether the driver of the first node carries a frame soon after TC did.
func (f *fleet) isCarriedOnce(t *testing.T, frame []byte, carries func() bool) bool {
	t.Helper()
	for range 10 {
		f.nodes[0].run(t, in, uplink, frame)
		if carries() {
			return true
		}
	}
	return false
}

// move tells a node of another address of a peer.
func (n *fleetNode) move(t *testing.T, f *fleet, other int, to netip.Addr) {
	t.Helper()
	p := n.knows(f, other)
	p.Theirs = to
	n.apply(t, []plan.Op{plan.PutPeer{ID: n.peer(other), Peer: p}})
}

// aNextHopChanges at TC, which asks the kernel once a second, and after what was taken away. The driver
// goes by what TC was told last.
func aNextHopChanges(t *testing.T, f *fleet) {
	stayOnOneCPU(t)
	n := f.nodes[0]
	f.serve(t, 2)
	frame := f.packet(40000, "A", 10).frame(t)
	epoch := uint64(1 << 31)
	defer n.say(t, "epoch", 0)
	for _, change := range []func(*testing.T, net.HardwareAddr){f.neighbourOf, f.gatewayOf} {
		for _, end := range []struct {
			what    string
			happens func()
		}{
			{"a second passes", func() { time.Sleep(1400 * time.Millisecond) }},
			{"something is taken away", func() { epoch++; n.say(t, "epoch", epoch) }},
			{"the peer has had another address", func() { n.move(t, f, 1, nodeAddr(9, f.overV6)); n.setUsable(t, f, 1, true) }},
		} {
			f.followsAfter(t, end.what, end.happens, frame, func(to net.HardwareAddr) { change(t, to) })
		}
	}
	n.routeTo(t, f.nodes[1].addr)
}

// followsAfter has the next hop to a peer change, and something happen after which that is known.
func (f *fleet) followsAfter(t *testing.T, what string, happens func(), frame []byte, change func(to net.HardwareAddr)) {
	t.Helper()
	n, was, is := f.nodes[0], net.HardwareAddr{2, 0, 0, 0, 0, 7}, net.HardwareAddr{2, 0, 0, 0, 0, 8}
	goesBy := func() net.HardwareAddr {
		got, err := n.try(in, uplink, frame)
		must(t, err)
		if got.verdict != redirect {
			t.Fatalf("%s: verdict %d for %s", what, got.verdict, dump(got.frame))
		}
		return got.frame[:6]
	}
	kept := false
	for range 10 { // what was said just before may end any moment
		change(was)
		happens()
		if at := goesBy(); !bytes.Equal(at, was) {
			t.Errorf("%s: it goes by %s, and not by the next hop, %s", what, at, was)
			return
		}
		change(is)
		if driven := n.repeated(t, frame); driven != nil && bytes.Equal(driven[:6], was) && bytes.Equal(goesBy(), was) {
			kept = true
			break
		}
	}
	if !kept {
		t.Errorf("%s: the kernel is asked for each packet", what)
	}
	happens()
	if driven := n.repeated(t, frame); driven != nil {
		t.Errorf("%s: the driver sends it by %s before TC has asked", what, net.HardwareAddr(driven[:6]))
	}
	var driven []byte
	for range 10 {
		if at := goesBy(); !bytes.Equal(at, is) {
			t.Errorf("%s: it goes by %s, and not by the new next hop, %s", what, at, is)
			return
		}
		if driven = n.repeated(t, frame); driven != nil {
			break
		}
	}
	if driven == nil || !bytes.Equal(driven[:6], is) {
		t.Errorf("%s: the driver does not go by the new next hop: %s", what, dump(driven))
	}
}

// neighbourOf says by which hardware address the second node is reached, on the same link.
func (f *fleet) neighbourOf(t *testing.T, at net.HardwareAddr) {
	t.Helper()
	f.nodes[0].routeTo(t, f.nodes[1].addr)
	f.neighbour(t, f.nodes[1].addr, at)
}

// gatewayOf has it reached by a gateway of its own for each hardware address.
func (f *fleet) gatewayOf(t *testing.T, at net.HardwareAddr) {
	t.Helper()
	to, via := f.nodes[1].addr, nodeAddr(200+int(at[5]), f.overV6)
	f.neighbour(t, via, at)
	l, err := netlink.LinkByName(uplink)
	must(t, err)
	must(t, netlink.RouteReplace(&netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())},
		Gw: via.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
	}))
}

func (f *fleet) neighbour(t *testing.T, a netip.Addr, at net.HardwareAddr) {
	t.Helper()
	l, err := netlink.LinkByName(uplink)
	must(t, err)
	must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: a.AsSlice(), HardwareAddr: at, State: unix.NUD_PERMANENT}))
}

package packets

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// outerLen is the length of the outer headers of a fleet.
func (f *fleet) outerLen() int {
	length := 20
	if f.overV6 {
		length = 40
	}
	return length + f.udpLen()
}

// whole is a frame that is not to be fragmented; those of IPv6 never are.
func whole(frame []byte) []byte {
	frame = bytes.Clone(frame)
	if frame[12] == 0x08 {
		h := frame[ethernetLen : ethernetLen+20]
		h[6] |= 0x40
		copy(h[10:], []byte{0, 0})
		binary.BigEndian.PutUint16(h[10:], sum16(h))
	}
	return frame
}

// longest is how many bytes a packet may carry to go on within an outer header.
func (f *fleet) longest(t *testing.T) int {
	return fleetMTU - f.outerLen() - len(f.packet(40000, "A", 0).datagram(t))
}

func tooLongIsTold(t *testing.T, f *fleet) {
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		f.protocol = protocol
		f.serve(t, 2)
		before := f.nodes[0].counters(t)["drop too_long"]
		if got := f.enter(t, 0, whole(f.packet(40000, "A", f.longest(t)).frame(t))); got.what != "delivered" {
			t.Errorf("the longest packet is %s", got.what)
		}
		for i, size := range []int{f.longest(t) + 1, fleetMTU, 3000} {
			given := whole(f.packet(40000, "A", size).frame(t))
			verdict, got := f.nodes[0].run(t, in, uplink, given)
			if want := f.toldAbout(t, given); verdict != redirect || !bytes.Equal(got, want) {
				t.Errorf("%s of %d bytes: verdict %d\ngot  %s\nwant %s", protocol, size, verdict, dump(got), dump(want))
			}
			if n := f.nodes[0].counters(t)["drop too_long"] - before; n != uint64(i+1) {
				t.Errorf("%d packets are counted as too long, want %d", n, i+1)
			}
		}
		passed := f.outerOf(0, 1, whole(f.packet(40001, "A", f.longest(t)+1).frame(t)), 0, 0)
		f.nodes[1].learn(t, 4) // another home
		if verdict, made := f.nodes[1].run(t, in, uplink, passed); verdict != drop {
			t.Errorf("one that was carried before: verdict %d for %s", verdict, dump(made))
		}
	}
}

// toldAbout is the error about a packet that is too long: from whom it was sent to, and of room
// for the outer header.
func (f *fleet) toldAbout(t *testing.T, given []byte) []byte {
	const quotedBytes = 68
	e := icmpError{from: f.vip, to: f.client, kind: 3, code: 4, word: uint32(fleetMTU - f.outerLen()), about: given[ethernetLen : ethernetLen+quotedBytes]}
	if !f.client.Is4() {
		e.kind, e.code = 2, 0
	}
	frame := whole(e.frame(t))
	return append(append(slices.Clone(given[6:12]), given[:6]...), frame[12:]...)
}

// The pieces of a packet are what a router would make of it, and each is carried. All but the last one
// leave before the program ends. No piece has a checksum that is yet to be finished.
func tooLongIsCut(t *testing.T, f *fleet) {
	if !f.client.Is4() {
		return // whose routers fragment nothing
	}
	most := (fleetMTU - f.outerLen() - 20) / 8 * 8
	wire := listen(t, uplink+"-peer")
	for _, protocol := range []lb.Protocol{lb.UDP, lb.TCP} {
		f.protocol = protocol
		f.serve(t, 2)
		p := f.packet(40000, "S", 4000)
		p.ttl = 63
		header := len(p.transport(t)) - 4000
		longer := p // that came in fragments, of which two are too long
		longer.payload = p.payload[:2*1480+100-header]
		for _, c := range []struct {
			packet
			offset, size         int
			fragment, unfinished bool
		}{
			{packet: f.sized(p, f.longest(t)+1), size: f.longest(t) + 1 + header}, {packet: f.sized(p, 1480-header), size: 1480},
			{packet: f.sized(p, 1480-header), size: 1480, unfinished: true}, {packet: f.sized(p, 1479-header), size: 1479, unfinished: true},
			{packet: f.sized(p, 3000), size: 3000 + header}, {packet: f.sized(p, 2*most-header), size: 2 * most},
			{packet: longer, size: 1480, fragment: true}, {packet: longer, offset: 1480, size: 1480, fragment: true},
		} {
			given := c.packet
			given.ttl = 64
			if c.fragment {
				given.fragment = &fragment{id: 9, offset: c.offset, size: c.size}
			}
			frame := given.frame(t)
			if c.unfinished {
				frame = unfinished(frame)
			}
			verdict, got := f.nodes[0].run(t, in, uplink, frame)
			if verdict != redirect {
				t.Fatalf("%s, %d bytes at %d: verdict %d for %s", protocol, c.size, c.offset, verdict, dump(got))
			}
			for at := 0; at < c.size; at += most {
				piece := c.packet
				piece.fragment = &fragment{offset: c.offset + at, size: min(most, c.size-at)}
				if given.fragment != nil {
					piece.fragment.id = given.fragment.id
				}
				made := got
				if at+most < c.size {
					made = wire.next(t)
				}
				f.isPiece(t, fmt.Sprintf("the piece at %d of %d bytes at %d", at, c.size, c.offset), made, piece)
			}
		}
	}
}

// unfinished leaves the checksum of a frame of IPv4 to a device: it is the sum of addresses, protocol and length.
func unfinished(frame []byte) []byte {
	frame = bytes.Clone(frame)
	ip, transport := frame[ethernetLen:][:20], frame[ethernetLen+20:]
	at := 6
	if ip[9] == byte(lb.TCP) {
		at = 16
	}
	pseudo := binary.BigEndian.AppendUint16([]byte{0, ip[9]}, uint16(len(transport)))
	binary.BigEndian.PutUint16(transport[at:], ^sum16(ip[12:20], pseudo))
	return frame
}

// sized is a packet with so many bytes of payload.
func (f *fleet) sized(p packet, size int) packet {
	p.payload = p.payload[:size]
	return p
}

// isPiece says that a frame is a packet as it is carried from one node to the next, which gives
// it to its backend.
func (f *fleet) isPiece(t *testing.T, what string, got []byte, p packet) {
	t.Helper()
	if want := f.outerOf(0, 1, p.frame(t), 0, 0); !f.isCarriedAs(got, want) {
		t.Fatalf("%s: got %s\nwant %s", what, dump(got), dump(want))
	}
	verdict, made := f.nodes[1].run(t, in, uplink, got)
	if want := p.to(p.src, f.addrOf(2)).frame(t); verdict != pass || !bytes.Equal(made[ethernetLen:], want[ethernetLen:]) {
		t.Fatalf("%s at home: verdict %d, got %s\nwant %s", what, verdict, dump(made), dump(want))
	}
}

// sniffer takes what comes out of a device.
type sniffer int

// listen takes what comes out of a device from now on, whatever it is of.
func listen(t *testing.T, device string) sniffer {
	t.Helper()
	const all = 0x0300 // ETH_P_ALL, in network byte order
	l, err := netlink.LinkByName(device)
	must(t, err)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: l.Attrs().Index}))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	return sniffer(fd)
}

// next returns the next frame that has an outer header.
func (s sniffer) next(t *testing.T) []byte {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		b := make([]byte, 4096)
		n, err := unix.Read(int(s), b)
		must(t, err)
		if n > ethernetLen && isCarried(b[:n]) {
			return b[:n]
		}
	}
	t.Fatal("no packet left that is carried")
	return nil
}

// tagsGoByAddress, since there is no place for an outer header before what stands behind tags.
func tagsGoByAddress(t *testing.T, f *fleet) {
	f.serve(t, 2)
	tagged := func(p packet) []byte {
		frame := p.frame(t)
		return slices.Concat(frame[:12], []byte{0x81, 0, 0, 5}, frame[12:])
	}
	p := f.packet(40000, "S", 10)
	f.nodes[0].framesBecome(t, "what begins", in, uplink, tagged(p), tagged(p.to(p.src, f.addrOf(2))))
	f.nodes[0].framesBecome(t, "what goes on", in, uplink, tagged(p.with("A")), tagged(p.with("A").to(p.src, f.addrOf(2))))
}

// errorsAreCarried wherever they come in, also where slots have moved since.
func errorsAreCarried(t *testing.T, f *fleet) {
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
		f.protocol = protocol
		f.serve(t, 0, 1, 2, 3)
		var all []packet
		for port := range uint16(12) {
			p, _, _ := f.begin(t, int(port)%3, 40000+port)
			all = append(all, p)
		}
		for step, backends := range [][]int{{0, 1, 2, 3}, {4, 5}, {1, 4}} {
			for _, n := range f.nodes {
				n.learn(t, backends...)
			}
			for i, p := range all {
				f.errorArrives(t, fmt.Sprintf("step %d", step), (i+step)%3, p)
			}
		}
		for port := range uint16(12) {
			e := f.portUnreachable(t, f.router, f.packet(41000+port, "A", 0).answer("A", nil))
			if got := f.enter(t, int(port)%3, e.frame(t)); got.what == "reset" || got.what == "passed" && got.frames > 0 || got.frames > 4 {
				t.Errorf("about nobody's packet: %s after %d frames", got.what, got.frames)
			}
		}
	}
}

// errorArrives says that an error about an answer to a packet gets to who sent that.
func (f *fleet) errorArrives(t *testing.T, when string, node int, p packet) {
	t.Helper()
	backend := f.numberOf(f.backendOf(t, p))
	given := f.portUnreachable(t, f.router, p.answer("A", nil))
	got := f.enter(t, node, given.frame(t))
	want := f.portUnreachable(t, f.router, p.to(p.src, f.addrOf(backend)).answer("A", nil)).packet()
	want.ttl = uint8(64 - got.frames)
	if got.what != "passed" || got.node != backend/backendsOfNode || got.frames > 4 || !bytes.Equal(got.frame[ethernetLen:], want.frame(t)[ethernetLen:]) {
		t.Fatalf("%s, at node %d: %s at %d after %d frames, %s\nwant it at %d as %s", when, node, got.what, got.node, got.frames, dump(got.frame), backend/backendsOfNode, dump(want.frame(t)))
	}
}

// backendOf asks who has a connection.
func (f *fleet) backendOf(t *testing.T, p packet) (backend netip.AddrPort) {
	t.Helper()
	got := f.enter(t, 0, p.with("A").frame(t))
	_, backend, _ = ends(got.frame)
	return backend
}

// portUnreachable is what somebody says about a packet.
func (f *fleet) portUnreachable(t *testing.T, from netip.Addr, about packet) icmpError {
	t.Helper()
	return cast{book: f.book}.portUnreachable(t, from, about)
}

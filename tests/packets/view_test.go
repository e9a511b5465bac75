package packets

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"github.com/gopacket/gopacket/layers"

	"github.com/headgate/headgate/pkg/lb"
)

// key is a packet as the model knows it: where it is seen, and between whom.
type key struct {
	hook     hook
	src, dst netip.AddrPort
	protocol lb.Protocol
}

// reversed is the key of what goes the other way, at a hook.
func (k key) reversed(h hook) key { return key{h, k.dst, k.src, k.protocol} }

// view is a frame read by the model: RFC 791, 8200, 9293, 768.
type view struct {
	key
	is4        bool
	l3, l4     int  // where the headers begin
	end        int  // of the packet
	later      bool // a fragment, not the first: it has no ports
	offset     int  // of the fragment
	more       bool // a fragment with others behind it
	fragmentID uint32
}

// minimum is the length of the shortest header of each protocol with ports.
var minimum = map[lb.Protocol]int{lb.TCP: 20, lb.UDP: 8, lb.SCTP: 12}

func (v view) hasPorts() bool { return minimum[v.protocol] > 0 }

// parse reads a frame with its ports, false if it has none.
func parse(frame []byte) (view, bool) {
	v, ok := parseFrame(frame)
	if !ok || !v.hasPorts() || v.later || len(frame) < v.l4+minimum[v.protocol] {
		return v, false
	}
	return v.withPorts(frame), true
}

// parseFrame reads the IP header of a frame, behind up to two VLAN tags.
func parseFrame(frame []byte) (view, bool) {
	at, kind := ethernetLen, binary.BigEndian.Uint16(frame[12:])
	for range 2 {
		if kind != 0x8100 && kind != 0x88a8 || len(frame) < at+4 {
			break
		}
		kind = binary.BigEndian.Uint16(frame[at+2:])
		at += 4
	}
	return parseIP(frame, at, kind)
}

// parseIP reads the IP header at an offset.
func parseIP(frame []byte, at int, etherType uint16) (view, bool) {
	switch etherType {
	case 0x0800:
		return parse4(frame, at)
	case 0x86dd:
		return parse6(frame, at)
	}
	return view{}, false
}

func parse4(frame []byte, at int) (view, bool) {
	if len(frame) < at+20 || frame[at]&15 < 5 {
		return view{}, false
	}
	h := frame[at:]
	offset := binary.BigEndian.Uint16(h[6:])
	v := view{is4: true, l3: at, l4: at + int(h[0]&15)*4, later: offset&0x1fff != 0, offset: int(offset&0x1fff) * 8, more: offset&0x2000 != 0}
	v.end = at + int(binary.BigEndian.Uint16(h[2:]))
	if v.end == at {
		v.end = len(frame)
	}
	v.fragmentID, v.protocol = uint32(binary.BigEndian.Uint16(h[4:])), lb.Protocol(h[9])
	v.src, v.dst = addrOnly(h[12:16]), addrOnly(h[16:20])
	return v, true
}

func addrOnly(b []byte) netip.AddrPort {
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, 0)
}

// tooManyHeaders is how many extension headers nobody sends.
const tooManyHeaders = 6

func parse6(frame []byte, at int) (view, bool) {
	if len(frame) < at+40 {
		return view{}, false
	}
	v := view{l3: at, l4: at + 40, end: at + 40 + int(binary.BigEndian.Uint16(frame[at+4:]))}
	if v.end == at+40 {
		v.end = len(frame)
	}
	v.src, v.dst = addrOnly(frame[at+8:at+24]), addrOnly(frame[at+24:at+40])
	if v.src.Addr().Is4In6() || v.dst.Addr().Is4In6() {
		return v, false
	}
	next := frame[at+6]
	for range tooManyHeaders {
		size, known := v.extension(next, frame[min(v.l4, len(frame)):])
		if !known {
			v.protocol = lb.Protocol(next)
			return v, true
		}
		if size == 0 {
			return v, false
		}
		isFragment := next == uint8(layers.IPProtocolIPv6Fragment)
		next = frame[v.l4]
		v.l4 += size
		if isFragment && v.later { // what follows is data
			v.protocol = lb.Protocol(next)
			return v, true
		}
	}
	return v, false
}

// extension reads an IPv6 extension header and returns its length, 0 where the
// packet is cut short, and whether it is one.
func (v *view) extension(number uint8, b []byte) (size int, known bool) {
	const hopByHop, routing, fragment, authentication, destination = 0, 43, 44, 51, 60
	switch number {
	case hopByHop, routing, fragment, authentication, destination:
	default:
		return 0, false
	}
	if len(b) < 8 {
		return 0, true
	}
	switch number {
	case fragment:
		offset := binary.BigEndian.Uint16(b[2:])
		v.offset, v.later, v.more, v.fragmentID = int(offset&^7), offset&^7 != 0, offset&1 != 0, binary.BigEndian.Uint32(b[4:])
		return 8, true
	case authentication:
		return (int(b[1]) + 2) * 4, true
	default:
		return (int(b[1]) + 1) * 8, true
	}
}

// withPorts reads the ports, which must be there.
func (v view) withPorts(frame []byte) view {
	v.src = netip.AddrPortFrom(v.src.Addr(), binary.BigEndian.Uint16(frame[v.l4:]))
	v.dst = netip.AddrPortFrom(v.dst.Addr(), binary.BigEndian.Uint16(frame[v.l4+2:]))
	return v
}

// rewritten returns a frame between others: checksums are corrected, not
// computed, so that a wrong one stays wrong (RFC 1624).
func (v view) rewritten(frame []byte, src, dst netip.AddrPort) []byte {
	out := append([]byte(nil), frame...)
	v.writeAddrs(out, src.Addr(), dst.Addr())
	if v.later {
		return out
	}
	before := append([]byte(nil), frame[v.l4:v.l4+4]...)
	writePorts(out[v.l4:], src, dst)
	v.adjustTransport(out, append(before, v.addrs(frame)...), append(out[v.l4:v.l4+4:v.l4+4], v.addrs(out)...))
	return out
}

// adjustTransport corrects the checksum of the transport header, if the frame
// goes so far, for the ports and addresses that were before and are after. One
// that is none stays none.
func (v view) adjustTransport(frame, before, after []byte) {
	if v.protocol == lb.SCTP {
		v.adjustSCTP(frame, before[:4], after[:4])
		return
	}
	udp := v.protocol == lb.UDP
	at := v.l4 + 16
	if udp {
		at = v.l4 + 6
	}
	if len(frame) < at+2 || udp && frame[at] == 0 && frame[at+1] == 0 {
		return
	}
	adjust(frame[at:], before, after)
	if udp && frame[at] == 0 && frame[at+1] == 0 {
		frame[at], frame[at+1] = 0xff, 0xff
	}
}

// adjustSCTP compares two packets of that length which are zero but for the
// ports: what their checksums differ by does not depend on the rest.
func (v view) adjustSCTP(frame, before, after []byte) {
	if len(frame) < v.l4+12 || v.end < v.l4+12 || v.more {
		return
	}
	check := frame[v.l4+8:]
	old := binary.LittleEndian.Uint32(check)
	if old == 0 || bytes.Equal(before, after) {
		return
	}
	zero := make([]byte, max(0, v.end-v.l4-4))
	was := crc32.Update(crc32.Checksum(before, castagnoli), castagnoli, zero)
	is := crc32.Update(crc32.Checksum(after, castagnoli), castagnoli, zero)
	binary.LittleEndian.PutUint32(check, old^was^is)
}

// addrs are the bytes of both addresses.
func (v view) addrs(frame []byte) []byte {
	if v.is4 {
		return frame[v.l3+12 : v.l3+20]
	}
	return frame[v.l3+8 : v.l3+40]
}

func (v view) writeAddrs(frame []byte, src, dst netip.Addr) {
	before := append([]byte(nil), v.addrs(frame)...)
	copy(v.addrs(frame), append(src.AsSlice(), dst.AsSlice()...))
	if v.is4 {
		adjust(frame[v.l3+10:], before, v.addrs(frame))
	}
}

func writePorts(b []byte, src, dst netip.AddrPort) {
	binary.BigEndian.PutUint16(b, src.Port())
	binary.BigEndian.PutUint16(b[2:], dst.Port())
}

// adjust corrects a checksum for bytes that are others now.
func adjust(check, before, after []byte) {
	sum := uint32(^binary.BigEndian.Uint16(check))
	for i := 0; i < len(before); i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(before[i:])) + uint32(binary.BigEndian.Uint16(after[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(check, ^uint16(sum))
}

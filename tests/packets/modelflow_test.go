package packets

import (
	"bytes"
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket/layers"

	"github.com/headgate/headgate/pkg/plan"
)

// own is the address of a device, of the family of a packet.
func own(d plan.Device, v view) netip.Addr {
	if v.is4 {
		return d.IP4
	}
	return d.IP6
}

// ends reads between whom a frame goes now. The rest of it must be as it should.
func (r result) ends(frame []byte, v view) (src, dst netip.AddrPort, err error) {
	w, ok := parseFrame(r.frame)
	if r.verdict != pass || !ok {
		return src, dst, fmt.Errorf("verdict %d, frame %s", r.verdict, dump(r.frame))
	}
	w = w.withPorts(r.frame)
	return w.src, w.dst, r.want(v.rewritten(frame, w.src, w.dst))
}

// isError says whether a packet is an ICMP error.
func (v view) isError(frame []byte) bool {
	if v.later || len(frame) <= v.l4 {
		return false
	}
	kind := frame[v.l4]
	if v.is4 {
		return layers.IPProtocol(v.protocol) == layers.IPProtocolICMPv4 && (kind == 3 || kind == 11 || kind == 12)
	}
	return layers.IPProtocol(v.protocol) == layers.IPProtocolICMPv6 && kind < 128
}

// translateError returns what an ICMP error should become: one about the
// packet that its receiver has sent.
func (m *model) translateError(frame []byte, v view) []byte {
	inner, ok := parseIP(frame, v.l4+8, map[bool]uint16{true: 0x0800, false: 0x86dd}[v.is4])
	if !ok || !inner.hasPorts() || inner.later || len(frame) < inner.l4+4 {
		return frame
	}
	inner = inner.withPorts(frame)
	f := m.flows[inner.reversed(v.hook)]
	if f == nil {
		return frame
	}
	m.counts["flow_error"]++
	from := v.src.Addr()
	if v.hook == out || from == inner.dst.Addr() {
		from = f.src.Addr()
	}
	made := bytes.Clone(frame)
	message := made[v.l4:]
	// What the checksum goes over changes by the inner header, with its own
	// checksum, and with IPv6 by the addresses of the outer one, too.
	before := bytes.Clone(frame[inner.l3 : inner.l4+4])
	v.writeAddrs(made, from, f.dst.Addr())
	inner.writeAddrs(made, f.dst.Addr(), f.src.Addr())
	writePorts(made[inner.l4:], f.dst, f.src)
	inner.adjustTransport(made, append(bytes.Clone(frame[inner.l4:inner.l4+4]), inner.addrs(frame)...), append(bytes.Clone(made[inner.l4:inner.l4+4]), inner.addrs(made)...))
	after := bytes.Clone(made[inner.l3 : inner.l4+4])
	if !v.is4 {
		before, after = append(before, v.addrs(frame)...), append(after, v.addrs(made)...)
	}
	if rest := min(len(frame), inner.l4+18) - inner.l4 - 4; rest > 1 { // up to where the last of the checksums ends
		before = append(before, frame[inner.l4+4:][:rest&^1]...)
		after = append(after, made[inner.l4+4:][:rest&^1]...)
	}
	adjust(message[2:], before, after)
	return made
}

// isDiscarded says whether the stack would discard a packet, wherever it is for.
func (m *model) isDiscarded(v view) bool {
	src, dst := v.src.Addr(), v.dst.Addr()
	zeroNet := src.Is4() && src.As4()[0] == 0
	return dst.IsUnspecified() || src.IsUnspecified() || zeroNet || src.IsMulticast() ||
		src == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || m.told.Addresses[src]&(plan.NodeAddress|plan.OwnAddress) != 0
}

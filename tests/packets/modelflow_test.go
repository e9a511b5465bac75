package packets

import (
	"bytes"
	"fmt"
	"net/netip"

	"github.com/gopacket/gopacket/layers"

	"github.com/headgate/headgate/pkg/lb"
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
	w, ok := parseIP(r.frame, ethernetLen, etherType(r.frame))
	if r.verdict != pass || !ok {
		return src, dst, fmt.Errorf("verdict %d, frame %s", r.verdict, dump(r.frame))
	}
	w = w.withPorts(r.frame)
	return w.src, w.dst, r.want(v.rewritten(frame, w.src, w.dst))
}

// note takes note of a packet of a flow.
func (f *modelFlow) note(frame []byte, v view) {
	const fin, syn, rst = 1, 2, 4
	f.idle, f.seen = false, true
	if v.protocol != lb.TCP || v.later {
		return
	}
	switch flags := frame[v.l4+13]; {
	case flags&(fin|rst) != 0:
		f.closing = true
	case flags&syn != 0:
		f.closing = false
	}
}

var otherHook = map[hook]hook{in: out, out: in}

// otherWay is the key of the other way of a flow.
func (f *modelFlow) otherWay(k key) key { return key{otherHook[k.hook], f.dst, f.src, k.protocol} }

// hasEnded says whether a flow, of which the way back is given, makes room for
// another that wants its port.
func (m *model) hasEnded(back key) bool {
	f := m.flows[back]
	way := m.flows[f.otherWay(back)]
	if way == nil {
		return true
	}
	return f.idle && way.idle && (back.protocol != lb.TCP || f.closing || way.closing || !f.seen)
}

// isFree says whether a way back is nobody's, or that of this packet already.
func (m *model) isFree(back, way key) bool {
	f := m.flows[back]
	return f == nil || f.src == way.dst && f.dst == way.src || m.hasEnded(back)
}

// begin takes note of a flow, both ways. It must have the first port that was
// to be tried, unless another flow has it.
func (m *model) begin(v view, src, dst netip.AddrPort, first uint16, f *modelFlow) error {
	back := func(port uint16) key { return key{otherHook[v.hook], dst, at(src.Addr(), port), v.protocol} }
	switch {
	case m.isFree(back(first), v.key):
		if src.Port() != first {
			return fmt.Errorf("it leaves from port %d though %d is free", src.Port(), first)
		}
	case src.Port() < snatLow || src.Port() > snatHigh:
		return fmt.Errorf("it leaves from port %d", src.Port())
	case !m.isFree(back(src.Port()), v.key):
		return fmt.Errorf("it leaves from port %d, which another flow has", src.Port())
	}
	old := m.flows[back(src.Port())]
	if old != nil && old.src == v.dst && old.dst == v.src {
		old.closing = false
	} else {
		if old != nil {
			delete(m.flows, old.otherWay(back(src.Port())))
		}
		m.flows[back(src.Port())] = &modelFlow{src: v.dst, dst: v.src}
	}
	f.src, f.dst = src, dst
	m.flows[v.key] = f
	m.counts["flow_made"]++
	return nil
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
	inner, ok := parseIP(frame, v.l4+8, etherType(frame))
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

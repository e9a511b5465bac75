package packets

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/headgate/headgate/pkg/lb"
)

// packet describes a packet. Its frame is the same whatever it was before
// somebody rewrote it, which is what the tests compare.
type packet struct {
	src, dst netip.AddrPort
	protocol lb.Protocol
	flags    string // of TCP: letters of "SAFR"
	payload  []byte
	ttl      uint8 // 0 is 64

	noChecksum bool     // UDP over IPv4 may go without
	options    []byte   // of IPv4, a multiple of four bytes
	headers    []header // of IPv6, before the transport header
	inner      []header // of IPv6, after the fragment header and cut with the rest
	fragment   *fragment
}

// header is an IPv6 extension header: its own number and all of its bytes, of
// which the first is filled in with the number of the next.
type header struct {
	number layers.IPProtocol
	bytes  []byte
}

// fragment makes of a packet the fragment that begins at an offset of its
// transport header and payload, and has so many bytes; 0 is all that is left.
type fragment struct {
	id           uint32
	offset, size int
}

const ethernetLen = 14

// firstSeq is the sequence number of every packet: all follow the other's SYN.
const firstSeq = 0x1234567

func (p packet) is4() bool { return p.dst.Addr().Is4() }

// answer is the packet back, with flags and payload of its own.
func (p packet) answer(flags string, payload []byte) packet {
	p.src, p.dst, p.flags, p.payload = p.dst, p.src, flags, payload
	return p
}

// to is the same packet between others.
func (p packet) to(src, dst netip.AddrPort) packet {
	p.src, p.dst = src, dst
	return p
}

// with is the same packet with other TCP flags.
func (p packet) with(flags string) packet {
	p.flags = flags
	return p
}

// frame returns the packet as it goes over an Ethernet.
func (p packet) frame(tb testing.TB) []byte {
	tb.Helper()
	return bytes.Join([][]byte{p.ethernet(), p.datagram(tb)}, nil)
}

func (p packet) ethernet() []byte {
	kind := layers.EthernetTypeIPv6
	if p.is4() {
		kind = layers.EthernetTypeIPv4
	}
	mac := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	return binary.BigEndian.AppendUint16(mac, uint16(kind))
}

// datagram returns the packet from its IP header on.
func (p packet) datagram(tb testing.TB) []byte {
	tb.Helper()
	body := p.transport(tb)
	if len(p.inner) > 0 {
		extensions, _ := join(p.inner, layers.IPProtocol(p.protocol))
		body = append(extensions, body...)
	}
	last := true
	if f := p.fragment; f != nil {
		body = body[f.offset:]
		if f.size > 0 && f.size < len(body) {
			body, last = body[:f.size], false
		}
	}
	if p.is4() {
		return append(p.header4(len(body), last), body...)
	}
	return append(p.header6(len(body), last), body...)
}

func (p packet) hops() uint8 {
	if p.ttl == 0 {
		return 64
	}
	return p.ttl
}

// header4 returns the IPv4 header, before so many bytes.
func (p packet) header4(size int, last bool) []byte {
	h := make([]byte, 20, 20+len(p.options))
	h[0], h[8], h[9] = 0x45+uint8(len(p.options)/4), p.hops(), uint8(p.protocol)
	binary.BigEndian.PutUint16(h[2:], uint16(cap(h)+size))
	if f := p.fragment; f != nil {
		binary.BigEndian.PutUint16(h[4:], uint16(f.id))
		binary.BigEndian.PutUint16(h[6:], uint16(f.offset/8))
		if !last {
			h[6] |= 0x20
		}
	}
	copy(h[12:], p.src.Addr().AsSlice())
	copy(h[16:], p.dst.Addr().AsSlice())
	h = append(h, p.options...)
	binary.BigEndian.PutUint16(h[10:], sum16(h))
	return h
}

// header6 returns the IPv6 header with its extensions, before so many bytes.
func (p packet) header6(size int, last bool) []byte {
	headers := p.headers
	if f := p.fragment; f != nil {
		b := make([]byte, 8)
		binary.BigEndian.PutUint16(b[2:], uint16(f.offset))
		if !last {
			b[3] |= 1
		}
		binary.BigEndian.PutUint32(b[4:], f.id)
		headers = append(headers[:len(headers):len(headers)], header{layers.IPProtocolIPv6Fragment, b})
	}
	next := layers.IPProtocol(p.protocol)
	if len(p.inner) > 0 {
		next = p.inner[0].number
	}
	extensions, next := join(headers, next)
	h := make([]byte, 40)
	h[0], h[6], h[7] = 0x60, uint8(next), p.hops()
	binary.BigEndian.PutUint16(h[4:], uint16(len(extensions)+size))
	copy(h[8:], p.src.Addr().AsSlice())
	copy(h[24:], p.dst.Addr().AsSlice())
	return append(h, extensions...)
}

// join returns extension headers before one with a number, and the number of
// the first of them.
func join(headers []header, next layers.IPProtocol) (extensions []byte, first layers.IPProtocol) {
	for i := len(headers) - 1; i >= 0; i-- {
		b := bytes.Clone(headers[i].bytes)
		b[0] = uint8(next)
		extensions, next = append(b, extensions...), headers[i].number
	}
	return extensions, next
}

// transport returns the packet from its transport header on.
func (p packet) transport(tb testing.TB) []byte {
	tb.Helper()
	var layer gopacket.SerializableLayer
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: !p.noChecksum}
	switch p.protocol {
	case lb.TCP:
		has := func(flag string) bool { return bytes.Contains([]byte(p.flags), []byte(flag)) }
		tcp := &layers.TCP{
			SrcPort: layers.TCPPort(p.src.Port()), DstPort: layers.TCPPort(p.dst.Port()), Seq: firstSeq, Ack: firstSeq + 1, Window: 1000,
			SYN: has("S"), ACK: has("A"), FIN: has("F"), RST: has("R"),
		}
		must(tb, tcp.SetNetworkLayerForChecksum(p.network()))
		layer = tcp
	case lb.UDP:
		udp := &layers.UDP{SrcPort: layers.UDPPort(p.src.Port()), DstPort: layers.UDPPort(p.dst.Port())}
		must(tb, udp.SetNetworkLayerForChecksum(p.network()))
		layer = udp
	case lb.SCTP:
		tag := uint32(7)
		if p.flags == "S" { // of an INIT
			tag = 0
		}
		layer = &layers.SCTP{SrcPort: layers.SCTPPort(p.src.Port()), DstPort: layers.SCTPPort(p.dst.Port()), VerificationTag: tag}
	default:
		return p.payload
	}
	b := gopacket.NewSerializeBuffer()
	must(tb, gopacket.SerializeLayers(b, options, layer, gopacket.Payload(p.payload)))
	return b.Bytes()
}

// network returns the header that checksums go over, too.
func (p packet) network() gopacket.NetworkLayer {
	src, dst := net.IP(p.src.Addr().AsSlice()), net.IP(p.dst.Addr().AsSlice())
	if p.is4() {
		return &layers.IPv4{SrcIP: src, DstIP: dst, Protocol: layers.IPProtocol(p.protocol)}
	}
	return &layers.IPv6{SrcIP: src, DstIP: dst, NextHeader: layers.IPProtocol(p.protocol)}
}

// sum16 is the checksum of RFC 1071.
func sum16(data ...[]byte) uint16 {
	var sum uint32
	for _, d := range data {
		for i := 0; i+1 < len(d); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(d[i:]))
		}
		if len(d)%2 == 1 {
			sum += uint32(d[len(d)-1]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// dump shows a frame to people.
func dump(frame []byte) string {
	return gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default).String() + "\n" + hex.Dump(frame)
}

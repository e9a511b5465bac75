// Package packet makes packets from their IP header on, such as those with which clients begin. It is for those who
// ask what becomes of one, so it knows no options.
package packet

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// Lengths of headers, in bytes (RFC 791, RFC 8200, RFC 9293, RFC 768).
const (
	IP4Len = 20
	IP6Len = 40
	TCPLen = 20
	udpLen = 8
)

// Flags of TCP (RFC 9293).
const (
	SYN = 0x02
	RST = 0x04
	ACK = 0x10
)

const ttl = 64

// First returns the packet with which a client begins: a SYN, or a datagram of zeros. Both ends are of one family.
func First(protocol lb.Protocol, from, to netip.AddrPort) []byte {
	if protocol == lb.TCP {
		return TCP(from, to, SYN, 0)
	}
	l4 := make([]byte, TCPLen)
	binary.BigEndian.PutUint16(l4[4:], TCPLen) // the length of UDP; SCTP has its tag there
	sumAt := -1
	if protocol == lb.UDP {
		sumAt = 6
	}
	return build(protocol, from, to, l4, sumAt)
}

// TCP returns a segment without data, which acknowledges nothing.
func TCP(from, to netip.AddrPort, flags byte, seq uint32) []byte {
	l4 := make([]byte, TCPLen)
	binary.BigEndian.PutUint32(l4[4:], seq)
	l4[12], l4[13] = TCPLen/4<<4, flags
	return build(lb.TCP, from, to, l4, 16)
}

// Datagram returns one of UDP with data. Both ends are of one family.
func Datagram(from, to netip.AddrPort, data []byte) []byte {
	l4 := append(make([]byte, udpLen), data...)
	binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	return build(lb.UDP, from, to, l4, 6)
}

// build writes the ports into a transport header, its sum, unless that stands nowhere, and an IP header before it.
func build(protocol lb.Protocol, from, to netip.AddrPort, l4 []byte, sumAt int) []byte {
	binary.BigEndian.PutUint16(l4, from.Port())
	binary.BigEndian.PutUint16(l4[2:], to.Port())
	addresses := slices.Concat(from.Addr().AsSlice(), to.Addr().AsSlice())
	if sumAt >= 0 {
		pseudo := binary.BigEndian.AppendUint32(slices.Clone(addresses), uint32(len(l4)))
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(protocol))
		binary.BigEndian.PutUint16(l4[sumAt:], sum(append(pseudo, l4...)))
	}
	if !from.Addr().Is4() {
		ip := make([]byte, IP6Len-len(addresses))
		ip[0], ip[6], ip[7] = 6<<4, byte(protocol), ttl
		binary.BigEndian.PutUint16(ip[4:], uint16(len(l4)))
		return slices.Concat(ip, addresses, l4)
	}
	ip := make([]byte, IP4Len-len(addresses))
	ip[0], ip[8], ip[9] = 4<<4|IP4Len/4, ttl, byte(protocol)
	binary.BigEndian.PutUint16(ip[2:], uint16(IP4Len+len(l4)))
	ip = append(ip, addresses...)
	binary.BigEndian.PutUint16(ip[10:], sum(ip))
	return append(ip, l4...)
}

// sum is that of RFC 1071.
func sum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > math.MaxUint16 {
		sum = sum>>16 + sum&math.MaxUint16
	}
	return ^uint16(sum)
}

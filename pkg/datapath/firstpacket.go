package datapath

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Lengths of headers, in bytes (IEEE 802.3, RFC 791, RFC 8200, RFC 9293).
const (
	etherLen = 14
	ip4Len   = 20
	ip6Len   = 40
	tcpLen   = 20
)

// firstPacket returns the frame with which a client begins: a SYN, or an empty datagram.
// Its sums are 0: programs do not look at them.
func firstPacket(protocol lb.Protocol, from, to netip.AddrPort) []byte {
	frame := make([]byte, etherLen, etherLen+ip6Len+tcpLen)
	ends := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from.Port()), to.Port())
	l4 := append(ends, make([]byte, tcpLen-len(ends))...)
	const synFlag, headerWords = 0x02, tcpLen / 4 << 4
	if l4[12], l4[13] = headerWords, synFlag; protocol != lb.TCP {
		clear(l4[4:])
		binary.BigEndian.PutUint16(l4[4:], tcpLen) // the length of UDP; SCTP has its tag there
	}
	const ttl = 64
	if from.Addr().Is4() {
		binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
		ip := make([]byte, 12, ip4Len)
		ip[0], ip[8], ip[9] = 4<<4|ip4Len/4, ttl, byte(protocol)
		binary.BigEndian.PutUint16(ip[2:], uint16(ip4Len+len(l4)))
		ip = append(append(ip, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
		return append(append(frame, ip...), l4...)
	}
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IPV6)
	ip := make([]byte, 8, ip6Len)
	ip[0], ip[6], ip[7] = 6<<4, byte(protocol), ttl
	binary.BigEndian.PutUint16(ip[4:], uint16(len(l4)))
	ip = append(append(ip, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	return append(append(frame, ip...), l4...)
}

// FirstPacket returns such a packet from its IP header on, with its sums.
func FirstPacket(protocol lb.Protocol, from, to netip.AddrPort) []byte {
	packet := firstPacket(protocol, from, to)[etherLen:]
	addresses, l4 := packet[ip6Len-32:ip6Len], packet[ip6Len:]
	if from.Addr().Is4() {
		addresses, l4 = packet[ip4Len-8:ip4Len], packet[ip4Len:]
		binary.BigEndian.PutUint16(packet[10:], internetSum(packet[:ip4Len]))
	}
	pseudo := binary.BigEndian.AppendUint32(slices.Clone(addresses), uint32(len(l4)))
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(protocol))
	switch sum := internetSum(append(pseudo, l4...)); protocol {
	case lb.TCP:
		binary.BigEndian.PutUint16(l4[16:], sum)
	case lb.UDP:
		binary.BigEndian.PutUint16(l4[6:], sum)
	}
	return packet
}

// internetSum is the sum of RFC 1071.
func internetSum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > math.MaxUint16 {
		sum = sum>>16 + sum&math.MaxUint16
	}
	return ^uint16(sum)
}

// ends returns the addresses and ports of such a frame, as a program has left it.
func ends(frame []byte) (from, to netip.AddrPort, err error) {
	l4, size := etherLen+ip4Len, 4
	if len(frame) > etherLen && frame[etherLen]>>4 == 6 {
		l4, size = etherLen+ip6Len, 16
	}
	if len(frame) < l4+4 {
		return from, to, errors.New("a program left no packet")
	}
	addr := func(at int) netip.Addr {
		a, _ := netip.AddrFromSlice(frame[at : at+size])
		return a
	}
	from = netip.AddrPortFrom(addr(l4-2*size), binary.BigEndian.Uint16(frame[l4:]))
	to = netip.AddrPortFrom(addr(l4-size), binary.BigEndian.Uint16(frame[l4+2:]))
	return from, to, nil
}

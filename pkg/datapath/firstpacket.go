package datapath

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/packet"
)

// etherLen is the length of a header, in bytes (IEEE 802.3).
const etherLen = 14

// firstPacket returns the frame with which a client begins.
func firstPacket(protocol lb.Protocol, from, to netip.AddrPort) []byte {
	return frameOf(packet.First(protocol, from, to))
}

// frameOf returns a packet behind an Ethernet header without addresses.
func frameOf(packet []byte) []byte {
	frame := make([]byte, etherLen)
	kind := uint16(unix.ETH_P_IPV6)
	if packet[0]>>4 == 4 {
		kind = unix.ETH_P_IP
	}
	binary.BigEndian.PutUint16(frame[12:], kind)
	return append(frame, packet...)
}

// ends returns the addresses and ports of such a frame, as a program has left it.
func ends(frame []byte) (from, to netip.AddrPort, err error) {
	l4, size := etherLen+packet.IP4Len, 4
	if len(frame) > etherLen && frame[etherLen]>>4 == 6 {
		l4, size = etherLen+packet.IP6Len, 16
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

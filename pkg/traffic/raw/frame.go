package raw

import (
	"encoding/binary"
	"fmt"
	"net"
)

// Kind says what is sent.
type Kind string

// The kinds of packets.
const (
	// SYN are TCP segments that ask for a connection.
	SYN Kind = "syn"
	// UDP are datagrams.
	UDP Kind = "udp"
	// FirstFragments begin datagrams whose rest never comes: whoever puts
	// datagrams together, or remembers ports of fragments, keeps them.
	FirstFragments Kind = "first-fragments"
	// LaterFragments are of datagrams that never began: they have no ports.
	LaterFragments Kind = "later-fragments"
)

// Kinds are all there are.
func Kinds() []Kind { return []Kind{SYN, UDP, FirstFragments, LaterFragments} }

// Sizes in bytes, and offsets in headers.
const (
	ethernet   = 14
	ipv4Header = 20
	ipv6Header = 40
	fragment6  = 8 // the extension header for fragments
	tcpHeader  = 20
	udpHeader  = 8
	// room is the least payload: it holds what makes up for the varying
	// source in the checksum.
	room = 8
)

// Protocol numbers.
const (
	protoTCP      = 6
	protoUDP      = 17
	protoFragment = 44
)

// template is a packet that becomes many by a few stores: the source port and
// the last two bytes of the source address vary. Wherever a checksum covers
// them, two bytes that nobody reads get the complement, so that the sum, and the
// checksum with it, stay the same.
type template struct {
	frame   []byte
	address int // offset of the last two bytes of the source address
	host    [2]byte
	network [2]byte // what the address has there, without the bits of host
	port    int     // offset of the source port; 0: there is none
	// Offsets of the complements: of the address in the header of IPv4 (its
	// identification), 0 for none; and in what the transport's checksum
	// covers, of the port and the address.
	identification, portBack, addressBack int
	// number is the offset of the datagram's number in a fragment; there it
	// varies instead of being a complement.
	number     int
	headerSums bool // the header of IPv4 is summed anew for each packet
}

// newTemplate returns the packet of a spec, from hardware address to hardware
// address.
func newTemplate(s *Spec, from, to net.HardwareAddr) (*template, error) {
	if s.Sources.Addr().Is4() != s.Target.Addr().Is4() {
		return nil, fmt.Errorf("sources %s and target %s are of different families", s.Sources, s.Target)
	}
	t := &template{}
	network := ipv6Header
	if s.Target.Addr().Is4() {
		network = ipv4Header
	} else if s.Kind == FirstFragments || s.Kind == LaterFragments {
		network += fragment6
	}
	transport := map[Kind]int{SYN: tcpHeader, UDP: udpHeader, FirstFragments: udpHeader}[s.Kind]
	payload := max(s.Size-ethernet-network-transport, room)
	if s.Kind == FirstFragments || s.Kind == LaterFragments {
		payload += (8 - (transport+payload)%8) % 8 // fragments are of whole units of eight bytes
	}
	if s.Kind == SYN {
		payload = 0
	}
	t.frame = make([]byte, ethernet+network+transport+payload)
	copy(t.frame, to)
	copy(t.frame[6:], from)
	t.putNetwork(s, network)
	t.putTransport(s, ethernet+network)
	return t, nil
}

func (t *template) putNetwork(s *Spec, network int) {
	ip := t.frame[ethernet:]
	source := s.Sources.Masked().Addr().AsSlice()
	first, later := s.Kind == FirstFragments, s.Kind == LaterFragments
	if s.Target.Addr().Is4() {
		binary.BigEndian.PutUint16(t.frame[12:], 0x0800)
		ip[0], ip[8], ip[9] = 4<<4|ipv4Header/4, 64, s.protocol()
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[6:], fragmentField(first, later))
		copy(ip[12:], source)
		copy(ip[16:], s.Target.Addr().AsSlice())
		t.address = ethernet + 14
		t.identification = ethernet + 4
	} else {
		binary.BigEndian.PutUint16(t.frame[12:], 0x86dd)
		ip[0], ip[6], ip[7] = 6<<4, s.protocol(), 64
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-ipv6Header))
		copy(ip[8:], source)
		copy(ip[24:], s.Target.Addr().AsSlice())
		t.address = ethernet + 22
		if first || later {
			ip[6] = protoFragment
			ip[ipv6Header] = s.protocol()
			field := uint16(1) // more to come
			if later {
				field = laterOffset << 3
			}
			binary.BigEndian.PutUint16(ip[ipv6Header+2:], field)
			t.number = ethernet + ipv6Header + 6
		}
	}
	bits := max(s.Sources.Addr().BitLen()-s.Sources.Bits(), 0)
	binary.BigEndian.PutUint16(t.host[:], uint16(1<<min(bits, 16)-1))
	copy(t.network[:], t.frame[t.address:])
	if (first || later) && t.identification > 0 {
		t.number, t.identification, t.headerSums = t.identification, 0, true
	}
}

// laterOffset is where in their datagram later fragments stand, in units of
// eight bytes.
const laterOffset = 100

// fragmentField is the field of IPv4 with flags and offset.
func fragmentField(first, later bool) uint16 {
	switch {
	case first:
		return 0x2000 // more to come
	case later:
		return laterOffset
	}
	return 0x4000 // do not fragment
}

func (s *Spec) protocol() byte {
	if s.Kind == SYN {
		return protoTCP
	}
	return protoUDP
}

// putTransport writes the header behind the network's, and the checksums as
// they are and stay.
func (t *template) putTransport(s *Spec, at int) {
	l4 := t.frame[at:]
	checksum := 0
	switch s.Kind {
	case SYN:
		binary.BigEndian.PutUint16(l4[2:], s.Target.Port())
		l4[12], l4[13] = tcpHeader/4<<4, 0x02
		binary.BigEndian.PutUint16(l4[14:], 0xffff)
		t.port, t.portBack, t.addressBack, checksum = at, at+4, at+6, at+16 // in the sequence number
	case UDP, FirstFragments:
		binary.BigEndian.PutUint16(l4[2:], s.Target.Port())
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
		t.port, checksum = at, at+6
		t.portBack, t.addressBack = at+udpHeader, at+udpHeader+2
	}
	if s.Kind == FirstFragments {
		// The rest never comes, so nobody can sum the datagram up.
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)+8))
		checksum = 0
	}
	t.vary(0)
	if t.identification > 0 {
		putSum(t.frame[ethernet:ethernet+ipv4Header], 10, 0)
	}
	if checksum > 0 {
		putSum(l4, checksum-at, pseudoSum(s.protocol(), t.frame[ethernet:at], len(l4)))
		if l4[checksum-at] == 0 && l4[checksum-at+1] == 0 {
			l4[checksum-at], l4[checksum-at+1] = 0xff, 0xff // zero would say: no checksum
		}
	}
}

// vary makes the next packet of the template in place, by random bits.
func (t *template) vary(random uint32) {
	f := t.frame
	for i := range 2 {
		f[t.address+i] = t.network[i] | byte(random>>(8*i))&t.host[i]
	}
	if t.identification > 0 {
		complement(f, t.identification, t.address)
	}
	if t.addressBack > 0 {
		complement(f, t.addressBack, t.address)
	}
	if t.port > 0 {
		f[t.port], f[t.port+1] = byte(random>>24)|0x80, byte(random>>16) // 32768 and above
		complement(f, t.portBack, t.port)
	}
	if t.number > 0 {
		f[t.number], f[t.number+1] = byte(random>>8), byte(random>>20)
	}
	if t.headerSums {
		putSum(f[ethernet:ethernet+ipv4Header], 10, 0)
	}
}

func complement(f []byte, to, of int) { f[to], f[to+1] = ^f[of], ^f[of+1] }

// putSum writes the Internet checksum (RFC 1071) of b into it.
func putSum(b []byte, at int, sum uint32) {
	b[at], b[at+1] = 0, 0
	sum = add(sum, b)
	binary.BigEndian.PutUint16(b[at:], ^uint16(sum))
}

// pseudoSum sums the header that TCP and UDP check besides their own.
func pseudoSum(protocol byte, network []byte, length int) uint32 {
	first, end := 8, 40
	if network[0]>>4 == 4 {
		first, end = 12, 20
	}
	return add(uint32(protocol)+uint32(length), network[first:end])
}

// add adds 16-bit words in ones' complement.
func add(sum uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) > 0 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum
}

package network

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// wantDatagrams sends datagrams of many lengths, through each node: such as may be fragmented on the
// way, such as may not, and such as come in fragments in the wrong order.
func (f *fabric) wantDatagrams(t *testing.T) {
	t.Helper()
	for ingress, n := range f.nodes {
		f.announce([]int{ingress})
		for _, family := range families {
			t.Run(fmt.Sprintf("datagrams, %s by %s", family, n.name), func(t *testing.T) {
				conn := f.dialCarried(t, family, n)
				defer conn.Close()
				f.wantDatagramsUpTo(t, family, conn, 9000, mayFragment)
				f.wantDatagramsUpTo(t, family, conn, f.longestWhole(family), mayNotFragment)
				if family == 0 { // that nodes cut, whose sum a device was to finish
					f.wantDatagramsUpTo(t, family, conn, 1500-headersOf(family), mayFragment)
				}
				f.wantFragmentsInAnyOrder(t, family, conn, n)
				f.wantToldLongest(t, family, conn)
			})
		}
	}
	f.announce([]int{0})
}

// dialCarried begins a flow of datagrams whose backend is on another node than the one where it comes in.
func (f *fabric) dialCarried(t *testing.T, family family, ingress *node) net.Conn {
	t.Helper()
	for range 50 {
		conn, err := f.client.dial("udp", carriedAt[family])
		if err != nil {
			t.Fatal(err)
		}
		said, err := exchange(conn, "who")
		if err == nil && !strings.HasPrefix(said, fmt.Sprintf("pod-%d ", ingress.number)) {
			return conn
		}
		conn.Close()
	}
	t.Fatalf("no flow through %s is carried", ingress.name)
	return nil
}

// How a socket sends, by IP_MTU_DISCOVER and IPV6_MTU_DISCOVER. What may be fragmented is as long as the link
// takes, whatever was learnt of the way; of IPv6 it is as long as was learnt, since nobody else fragments.
var (
	mayFragment    = [2]int{unix.IP_PMTUDISC_OMIT, unix.IPV6_PMTUDISC_DONT}
	mayNotFragment = [2]int{unix.IP_PMTUDISC_DO, unix.IPV6_PMTUDISC_DO}
)

// headersOf is the length of the headers of a datagram.
func headersOf(family family) int { return []int{20, 40}[family] + 8 }

// longestWhole is the longest payload of a datagram that is carried in one piece.
func (f *fabric) longestWhole(family family) int {
	outer := 36
	if f.underlay.ipv6 {
		outer = 56
	}
	return min(f.underlay.mtu-outer, 1500) - headersOf(family)
}

// wantDatagramsUpTo sends datagrams of a byte, of some more, and of so many; their answers are as long.
func (f *fabric) wantDatagramsUpTo(t *testing.T, family family, conn net.Conn, most int, discovery [2]int) {
	t.Helper()
	setDiscovery(t, conn, family, discovery[family])
	for _, size := range []int{1, 2, 700, most / 3, most - 1, most} {
		f.wantAnswered(t, family, conn, size, func(payload string) (string, error) { return exchange(conn, payload) })
	}
}

// wantAnswered wants an answer to a datagram of so many bytes, from a pod that sees the client.
func (f *fabric) wantAnswered(t *testing.T, family family, conn net.Conn, size int, ask func(payload string) (string, error)) {
	t.Helper()
	said, err := ask(strings.Repeat("x", size))
	if err != nil || !strings.HasSuffix(said, " "+clientAddr[family].String()) {
		t.Errorf("a datagram of %d bytes from %s: the answer begins %.60q, %v; want the client's address", size, conn.LocalAddr(), said, err)
	}
}

func setDiscovery(t *testing.T, conn net.Conn, family family, discovery int) {
	t.Helper()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	if family == 1 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
	}
	if failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, discovery) }); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
}

// wantToldLongest sends a datagram that is too long to be carried and may not be fragmented: its sender
// is told by the Service how long it may be.
func (f *fabric) wantToldLongest(t *testing.T, family family, conn net.Conn) {
	t.Helper()
	to := carriedAt[family]
	got, err := provoke(family, conn, min(f.underlay.mtu, 1500)-headersOf(family), 64)
	want := report{unix.EMSGSIZE, to.Addr(), to, uint32(f.longestWhole(family) + headersOf(family))}
	if got != want || err != nil {
		t.Errorf("of a datagram that is too long: %+v, %v, want %+v", got, err, want)
	}
}

// wantFragmentsInAnyOrder sends the fragments of a datagram, the last one first, through a node.
func (f *fabric) wantFragmentsInAnyOrder(t *testing.T, family family, conn net.Conn, ingress *node) {
	t.Helper()
	before := ingress.counter(t, "fragment_queued")
	f.wantAnswered(t, family, conn, 5000, func(payload string) (said string, err error) {
		for range 5 {
			f.sendBackwards(family, conn.LocalAddr().(*net.UDPAddr).AddrPort(), rand.Uint32(), payload)
			if said, err = answerTo(conn, payload); err == nil {
				break
			}
		}
		return said, err
	})
	if ingress.counter(t, "fragment_queued") == before {
		t.Errorf("%s: no fragment has waited for the first one", ingress.name)
	}
}

// fragmentBytes is how much of a datagram is in each fragment: as much as its sender's link takes where
// nodes may cut it in two, else as much as is carried.
func (f *fabric) fragmentBytes(family family) int {
	if family == 0 {
		return (min(f.underlay.mtu, 1500) - 20) / 8 * 8
	}
	return (f.longestWhole(family) + headersOf(family) - 40 - 8) / 8 * 8
}

// sendBackwards has the client send a datagram of a number to the Service, in fragments from the last to the first.
func (f *fabric) sendBackwards(family family, from netip.AddrPort, number uint32, payload string) {
	f.tb.Helper()
	to := carriedAt[family]
	sums := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
	var header gopacket.NetworkLayer = &layers.IPv4{Protocol: layers.IPProtocolUDP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	if family == 1 {
		header = &layers.IPv6{NextHeader: layers.IPProtocolUDP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	}
	if err := udp.SetNetworkLayerForChecksum(header); err != nil {
		f.tb.Fatal(err)
	}
	datagram := serialized(f.tb, sums, udp, gopacket.Payload(payload))
	most := f.fragmentBytes(family)
	for at := (len(datagram) - 1) / most * most; at >= 0; at -= most {
		part := datagram[at:min(at+most, len(datagram))]
		f.client.sendRaw(to.Addr(), fragmentOf(f.tb, from.Addr(), to.Addr(), number, at, at+len(part) < len(datagram), part))
	}
}

// fragmentOf is a packet with a part of a datagram.
func fragmentOf(tb testing.TB, from, to netip.Addr, number uint32, at int, more bool, part []byte) []byte {
	tb.Helper()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if to.Is4() {
		var flags layers.IPv4Flag
		if more {
			flags = layers.IPv4MoreFragments
		}
		return serialized(tb, options, &layers.IPv4{
			Version: 4, TTL: 64, Id: uint16(number), Flags: flags, FragOffset: uint16(at / 8), Protocol: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice(),
		}, gopacket.Payload(part))
	}
	extension := []byte{byte(layers.IPProtocolUDP), 0, byte(at >> 8), byte(at &^ 7), byte(number >> 24), byte(number >> 16), byte(number >> 8), byte(number)}
	if more {
		extension[3] |= 1
	}
	return serialized(tb, options, &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolIPv6Fragment, SrcIP: from.AsSlice(), DstIP: to.AsSlice(),
	}, gopacket.Payload(bytes.Join([][]byte{extension, part}, nil)))
}

// sendRaw sends a packet as it is.
func (h *host) sendRaw(to netip.Addr, packet []byte) {
	h.tb.Helper()
	domain, at := unix.AF_INET, unix.Sockaddr(nil)
	if to.Is4() {
		at = &unix.SockaddrInet4{Addr: to.As4()}
	} else {
		domain, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.As16()}
	}
	h.do(func() error {
		s, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return unix.Sendto(s, packet, 0, at)
	})
}

// wantLongestDatagram has the client send a datagram as long as its link takes.
func (f *fabric) wantLongestDatagram(t *testing.T, family family) {
	t.Helper()
	conn, err := f.client.dial("udp", carriedAt[family])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f.wantDatagramsUpTo(t, family, conn, 1500-headersOf(family), mayFragment)
}

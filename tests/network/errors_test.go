package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// report is what a socket is told of an ICMP error: by whom, about what it has
// sent to whom, and the largest size of a packet where that is the matter.
type report struct {
	errno    unix.Errno
	offender netip.Addr
	to       netip.AddrPort
	size     uint32
}

// hops walks the way to a pod as traceroute does: every machine on it says that
// the time of a packet is up, about the packet that the client knows.
func hops(t *testing.T, n *network) {
	n.eachPath(t, func(t *testing.T, f family, asked, answers *node, to netip.AddrPort) {
		way := []netip.Addr{
			[]netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:c::1")}[f],
			[]netip.Addr{netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("2001:db8:18::2")}[f],
			to.Addr(),
		}
		if asked != answers { // whose address would tell the client nothing: as in an answer, it sees whom it asked
			way = append(way, to.Addr())
		}
		for i, offender := range way {
			got, err := n.client.provoke(f, to, 1, i+1)
			if want := (report{unix.EHOSTUNREACH, offender, to, 0}); got != want || err != nil {
				t.Errorf("hop %d: %+v, %v, want %+v", i+1, got, err, want)
			}
		}
	})
}

// narrowPods makes the last link narrow, behind all translation: whoever is
// before it says so to the client, about the packet that the client knows.
func narrowPods(t *testing.T, n *network) {
	const narrow = 1280
	for _, node := range n.nodes {
		for h, device := range map[*host]string{node.host: "pod0", node.pod: "eth0"} {
			h.mtu(device, narrow)
		}
	}
	n.eachPath(t, func(t *testing.T, f family, asked, answers *node, to netip.AddrPort) {
		n.forgetMTUs()
		got, err := n.client.provoke(f, to, narrow, 64) // with headers it is larger
		if want := (report{unix.EMSGSIZE, to.Addr(), to, narrow}); got != want || err != nil {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		if err := n.client.transfer(to, 1<<18); err != nil {
			t.Error(err)
		}
	})
}

func (h *host) mtu(device string, mtu int) {
	h.tb.Helper()
	h.do(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(l, mtu)
	})
}

// provoke sends a datagram that may not be fragmented, whatever was learnt of the
// way before, and lives for so many hops, until an error comes back.
func (h *host) provoke(f family, to netip.AddrPort, size, hops int) (report, error) {
	conn, err := h.dial("udp", to)
	if err != nil {
		return report{}, err
	}
	defer conn.Close()
	return provoke(f, conn, size, hops)
}

// provoke does so over a flow.
func provoke(f family, conn net.Conn, size, hops int) (report, error) {
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		return report{}, err
	}
	level, options := unix.IPPROTO_IP, map[int]int{unix.IP_TTL: hops, unix.IP_RECVERR: 1, unix.IP_MTU_DISCOVER: unix.IP_PMTUDISC_PROBE}
	if f == 1 {
		level, options = unix.IPPROTO_IPV6, map[int]int{unix.IPV6_UNICAST_HOPS: hops, unix.IPV6_RECVERR: 1, unix.IPV6_MTU_DISCOVER: unix.IPV6_PMTUDISC_PROBE}
	}
	var told report
	err = errors.New("no error comes back")
	for range 5 { // errors are rate-limited
		failed := raw.Control(func(fd uintptr) {
			for option, value := range options {
				_ = unix.SetsockoptInt(int(fd), level, option, value)
			}
			_ = unix.Send(int(fd), bytes.Repeat([]byte("x"), size), 0)
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) && err != nil; time.Sleep(time.Millisecond) {
				told, err = readReport(int(fd))
			}
		})
		if failed != nil || err == nil {
			return told, failed
		}
	}
	return told, err
}

// readReport reads an error that the socket has queued. The errors of this
// machine itself are left out: they tell what it has learnt before.
func readReport(fd int) (report, error) {
	control := make([]byte, 512)
	_, n, _, peer, err := unix.Recvmsg(fd, make([]byte, 2048), control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return report{}, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return report{}, err
	}
	for _, m := range messages {
		ip4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		if !ip4 && (m.Header.Level != unix.IPPROTO_IPV6 || m.Header.Type != unix.IPV6_RECVERR) {
			continue
		}
		// struct sock_extended_err, then the address of who said so.
		if origin := m.Data[4]; origin == unix.SO_EE_ORIGIN_LOCAL {
			return report{}, errors.New("an error of the client itself")
		}
		told := report{errno: unix.Errno(binary.NativeEndian.Uint32(m.Data)), to: addrPort(peer), size: binary.NativeEndian.Uint32(m.Data[8:])}
		if ip4 {
			told.offender = netip.AddrFrom4([4]byte(m.Data[16+4:]))
		} else {
			told.offender = netip.AddrFrom16([16]byte(m.Data[16+8:]))
		}
		return told, nil
	}
	return report{}, fmt.Errorf("%d control messages, none of them about an error", len(messages))
}

func addrPort(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

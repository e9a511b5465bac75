package network

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

// timeExceeded sends datagrams that live just up to a node, as traceroute does.
// The client hears of it only if the ICMP error is about what it has sent.
func timeExceeded(t *testing.T, n *network) {
	n.eachPath(t, func(t *testing.T, f family, asked, answers *node, to netip.AddrPort) {
		const hopsToNode = 3 // far, router, and the node that sends it on
		if err := n.client.expire(f, to, hopsToNode); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("on the node that was asked: %v", err)
		}
		if asked != answers {
			if err := n.client.expire(f, to, hopsToNode+1); !errors.Is(err, unix.EHOSTUNREACH) {
				t.Errorf("on the node of the pod: %v", err)
			}
		}
	})
}

// expire sends a datagram that lives for so many hops, and returns the error
// that the socket gets.
func (h *host) expire(f family, to netip.AddrPort, hops int) error {
	conn, err := h.dial("udp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Control(func(fd uintptr) {
		if f == 0 {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, hops)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1)
			return
		}
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hops)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	})
	if err != nil {
		return err
	}
	for range 5 { // errors are rate-limited
		if _, err = conn.Write([]byte("x")); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err = conn.Read(make([]byte, 100)); !errors.Is(err, unix.EAGAIN) && !isTimeout(err) {
			return err
		}
	}
	return err
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// drops returns what the datapath of a node has refused.
func (n *node) drops(t *testing.T) map[string]uint64 {
	t.Helper()
	return n.status(t).Drops
}

// counter returns what the datapath of a node has counted under a name.
func (n *node) counter(t *testing.T, name string) uint64 {
	t.Helper()
	return n.status(t).Counters[name]
}

func (n *node) status(t *testing.T) datapath.Status {
	t.Helper()
	return testenv.Status(t, n.root)
}

package network

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestTapsSeeWhatIsOnTheWire takes paths while each node listens on its uplink, as tcpdump
// does. A packet is then one of two that share their memory, and to rewrite it must not
// change what is seen of it.
func TestTapsSeeWhatIsOnTheWire(t *testing.T) {
	for name, tunnel := range map[string]bool{"routes": false, "VXLAN": true} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, tunnel)
			var taps []*tap
			for _, node := range n.nodes {
				node.serve()
				taps = append(taps, node.tap("eth0"))
			}
			n.startAgents()
			for _, c := range []struct {
				name string
				test func(*testing.T, *network)
			}{
				{"NodePorts", nodePorts}, {"refusals", refusals}, {"transfers", transfers}, {"fragments", fragments},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(t, n) })
			}
			for i, tap := range taps {
				if seen, changed := tap.seen.Load(), tap.changed.Load(); seen == 0 || changed > 0 {
					t.Errorf("on %s %d packets of the client came in, %d of them rewritten; want some, and none", n.nodes[i].name, seen, changed)
				}
			}
		})
	}
}

// tap counts packets of the client that come in by a device.
type tap struct {
	seen    atomic.Int64
	changed atomic.Int64 // those to a pod, which the client has not heard of
}

func (n *node) tap(device string) *tap {
	n.tb.Helper()
	tap, stop, stopped := &tap{}, make(chan struct{}), make(chan struct{})
	var socket int
	n.do(func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}); err != nil {
			return err
		}
		return unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: l.Attrs().Index})
	})
	go func() {
		defer close(stopped)
		tap.listen(socket, stop)
	}()
	n.tb.Cleanup(func() {
		close(stop)
		<-stopped
		unix.Close(socket)
	})
	return tap
}

// listen looks at packets until it is stopped.
func (t *tap) listen(socket int, stop <-chan struct{}) {
	for b := make([]byte, 64); ; {
		select {
		case <-stop:
			return
		default:
		}
		size, from, err := unix.Recvfrom(socket, b, 0)
		if link, ok := from.(*unix.SockaddrLinklayer); err == nil && ok && link.Pkttype == unix.PACKET_HOST {
			t.look(b[:size])
		}
	}
}

func (t *tap) look(packet []byte) {
	src, dst, ok := addrsOf(packet)
	if !ok || !slices.Contains(clientAddr[:], src) {
		return
	}
	t.seen.Add(1)
	for _, pods := range []string{"10.244.0.0/16", "fd00:10:244::/48"} {
		if netip.MustParsePrefix(pods).Contains(dst) {
			t.changed.Add(1)
		}
	}
}

// addrsOf is the addresses of a packet.
func addrsOf(packet []byte) (src, dst netip.Addr, ok bool) {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[12:])), netip.AddrFrom4([4]byte(packet[16:])), true
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[8:])), netip.AddrFrom16([16]byte(packet[24:])), true
	}
	return src, dst, false
}

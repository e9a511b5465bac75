package network

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// tun makes a device whose packets have no Ethernet header (tun(4)).
func (h *host) tun(name string) *os.File {
	h.tb.Helper()
	var file *os.File
	h.do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return fmt.Errorf("make tun device %s: %w", name, err)
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), name)
		return nil
	})
	h.tb.Cleanup(func() { file.Close() })
	h.up(name)
	return file
}

// pump carries packets from one end of a tunnel to the other, until it is closed.
func pump(to io.Writer, from io.Reader) {
	b := make([]byte, 65536)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		_, _ = to.Write(b[:n])
	}
}

// TestATunnelWithoutEthernetHeader has the way between the nodes' pods by a
// tunnel such as WireGuard's: with addresses, and without, where flows leave
// with the address that the node has elsewhere.
func TestATunnelWithoutEthernetHeader(t *testing.T) {
	for name, addressed := range map[string]bool{"with addresses": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, false)
			n.devices = 2
			a, b := n.nodes[0].tun("tun0"), n.nodes[1].tun("tun0")
			go pump(a, b)
			go pump(b, a)
			for _, node := range n.nodes {
				node.serve()
				other := n.nodes[2-node.number]
				if addressed {
					node.snat = [2]netip.Addr{netip.MustParseAddr(fmt.Sprintf("172.30.0.%d", node.number)), netip.MustParseAddr(fmt.Sprintf("fd00:30::%d", node.number))}
					node.address("tun0", node.snat[0].String()+"/24", node.snat[1].String()+"/64")
				} else { // answers come by the other device
					node.filter("0", "all", "eth0", "tun0") // a device without address passes no filter
				}
				node.link("tun0", fmt.Sprintf("10.244.%d.0/24", other.number))
				node.link("tun0", fmt.Sprintf("fd00:10:244:%d::/64", other.number))
			}
			n.startAgents()
			for _, node := range n.nodes {
				eventually(t, "programs for its headers", func() error {
					if found, err := filepath.Glob(filepath.Join(node.root, "links", "l3_in_*")); err != nil || len(found) != 1 {
						return fmt.Errorf("attached are %v, %v", found, err)
					}
					return nil
				})
			}
			t.Run("NodePorts", func(t *testing.T) { nodePorts(t, n) })
			t.Run("transfers", func(t *testing.T) { transfers(t, n) })
			t.Run("fragments", func(t *testing.T) { fragments(t, n) })
		})
	}
}

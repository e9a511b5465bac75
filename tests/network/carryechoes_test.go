package network

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pod that the node masquerades sends from the port of echoes to a peer and to the Service, so that
// connection tracking gives the pod what comes back to that port. Echoes still get to the agent.
func TestAPodDoesNotGetTheEchoes(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nftables: apt-get install nftables")
	}
	f := newFabric(t, "dsr")
	f.nodes[0].execute(`table ip clients {
 chain leaves { type nat hook postrouting priority srcnat; oifname "eth0" ip saddr 10.244.0.0/16 masquerade; }
}
`, "nft", "-f", "-")
	f.announce([]int{0})
	f.endpoints([]int{1})
	home := netip.AddrPortFrom(f.nodes[1].addr, 6635)
	ends := []netip.AddrPort{home, netip.AddrPortFrom(carriedAt[0].Addr(), 6635)}
	var fd int
	f.pods[0].do(func() (err error) { // before any agent asks
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 6635}); err != nil {
			return err
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() { close(stop); <-stopped })
		go func() {
			defer close(stopped)
			for {
				for _, to := range ends {
					_ = unix.Sendto(fd, []byte("hold"), 0, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
				}
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}
			}
		}()
		return nil
	})
	time.Sleep(time.Second)
	f.start()
	eventually(t, "all nodes carry", f.carries)
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if p, err := f.nodes[0].saysOf(f.nodes[1]); err != nil || !p.Usable {
			t.Fatalf("%s is not usable: %+v, %v", f.nodes[1].name, p, err)
		}
	}
	f.asks(t, "while a pod holds the port", true)
	if n, _, err := unix.Recvfrom(fd, make([]byte, 100), unix.MSG_DONTWAIT); err == nil {
		t.Errorf("the pod has got %d bytes", n)
	}
}

// Nodes whose device lo does not forward, and where a process has UDP port 6635, are asked and answer. Hardware
// addresses that the kernel forgets are found again.
func TestNodesAreAskedPastTheirSockets(t *testing.T) {
	f := newFabric(t, "dsr")
	for _, n := range f.nodes {
		n.do(func() error {
			for _, setting := range []string{"ipv4/conf/lo/forwarding", "ipv6/conf/lo/forwarding"} {
				if err := os.WriteFile("/proc/sys/net/"+setting, []byte("0"), 0); err != nil {
					return err
				}
			}
			for _, network := range []string{"udp4", "udp6"} {
				conn, err := net.ListenPacket(network, ":6635")
				if err != nil {
					return err
				}
				t.Cleanup(func() { conn.Close() })
			}
			return nil
		})
	}
	f.announce([]int{0})
	f.endpoints([]int{1, 2})
	f.start()
	eventually(t, "all nodes carry", f.carries)
	f.asks(t, "with ports taken", true)
	in := f.nodes[0]
	in.do(func() error { return exec.Command("ip", "neigh", "flush", "all").Run() })
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, home := range f.nodes[1:] {
			if p, err := in.saysOf(home); err != nil || !p.Usable {
				t.Fatalf("%s is not usable: %+v, %v", home.name, p, err)
			}
		}
	}
	f.asks(t, "with hardware addresses found again", true)
}

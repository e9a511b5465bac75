package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/migrate"
)

// TestConnectionsOutliveHeadgate has connections stand by an agent, to backends here and on the
// other node, and carry something all the time. Rules such as kube-proxy's come, the agent
// ends, and Headgate is removed: the kernel goes on with each of them, and none is delayed by
// a packet that was lost.
func TestConnectionsOutliveHeadgate(t *testing.T) {
	for _, r := range []proxyRules{
		{"nftables", writeNFTables, deleteNFTables, true},
		{"iptables", writeIPTables, deleteIPTables, true},
	} {
		t.Run(r.name, func(t *testing.T) {
			if _, err := exec.LookPath(strings.Replace(r.name, "nftables", "nft", 1)); err != nil {
				t.Skip("needs nftables and iptables: apt-get install nftables iptables")
			}
			s := newBesideStage(t)
			for _, node := range s.nodes {
				s.echo(node.pod)
			}
			s.startBeside(t)
			s.holdAll(r)
			port := s.endAtPod2()
			s.writeRules(r)
			s.node.stop()
			over := s.keepTalking(t)
			s.node.do(func() error {
				done, err := migrate.Remove(s.node.root)
				if h := done.HandedOver; err == nil && (h.Left > 0 || h.Why != nil || h.Done == 0) {
					err = fmt.Errorf("%d connections are handed over, %d are left: %w", h.Done, h.Left, h.Why)
				}
				return err
			})
			over()
			if _, pod := s.openBy(port); pod != s.node.podAddrs(s.node.pod)[0] {
				t.Errorf("a port that comes again has pod %s, want the one that rules have", pod)
			}
		})
	}
}

// holdAll opens connections and sockets for datagrams to all addresses, of clients whose
// packets are balanced.
func (s *besideStage) holdAll(r proxyRules) {
	s.tb.Helper()
	from := s.everywhere()
	delete(from, "the node")
	for _, f := range families {
		for _, service := range r.services(s.node, f) {
			s.hold(service.Addr, from)
			for who, h := range from {
				conn, err := h.dial("udp", service.Addr)
				if err != nil {
					s.tb.Fatal(err)
				}
				s.tb.Cleanup(func() { conn.Close() })
				s.talks = append(s.talks, talk{name: fmt.Sprintf("datagrams of %s to %s", who, service.Addr), client: conn, server: conn})
			}
		}
	}
}

// openBy opens a connection by a port of the client, and says which pod took it.
func (s *besideStage) openBy(port int) (client net.Conn, pod netip.Addr) {
	s.tb.Helper()
	s.client.do(func() (err error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}, Timeout: 10 * time.Second}
		client, err = d.Dial("tcp", s.node.at(0, hashed).String())
		return err
	})
	server := <-s.accepted
	s.tb.Cleanup(func() { client.Close(); server.Close() })
	return client, netip.MustParseAddrPort(server.LocalAddr().String()).Addr().Unmap()
}

// endAtPod2 has a client come to a pod that no rules will choose and end that, and returns
// its port.
func (s *besideStage) endAtPod2() int {
	s.tb.Helper()
	for port := 20000; ; port++ {
		client, pod := s.openBy(port)
		_ = client.(*net.TCPConn).SetLinger(0)
		client.Close()
		if pod == s.nodes[1].podAddrs(s.nodes[1].pod)[0] {
			return port
		}
	}
}

// echo has a pod answer datagrams.
func (s *besideStage) echo(pod *host) {
	s.tb.Helper()
	pod.do(func() error {
		l, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", ":8080")
		if err != nil {
			return err
		}
		s.tb.Cleanup(func() { l.Close() })
		go func() {
			for b := make([]byte, 64); ; {
				n, from, err := l.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = l.WriteTo(b[:n], from)
			}
		}()
		return nil
	})
}

// writeRules has rules balance all that is new to the agent's Services.
func (s *besideStage) writeRules(r proxyRules) {
	s.tb.Helper()
	for i, local := range []string{"10.244.0.0/16", "fd00:10:244::/48"} {
		r.write(s, r.services(s.node, family(i)), netip.MustParsePrefix(local))
	}
}

// keepTalking has every connection carry something, over and over, until what it returns is
// called, which waits for a last time.
func (s *besideStage) keepTalking(t *testing.T) (over func()) {
	var talking sync.WaitGroup
	ended := make(chan struct{})
	for _, k := range s.talks {
		talking.Go(func() {
			for last := false; !last; {
				select {
				case <-ended:
					last = true
				case <-time.After(time.Millisecond):
				}
				if err := k.stands(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return func() {
		close(ended)
		talking.Wait()
	}
}

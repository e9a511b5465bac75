package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// TestNodesAndPodsGetTheirAnswers has the node, without and with connection tracking, and a pod that the
// node masquerades speak to a server outside from the number of a NodePort.
func TestNodesAndPodsGetTheirAnswers(t *testing.T) {
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
	}
	n.nodes[1].cniFirewall()
	n.client.serveAs("outside")
	n.startAgents()
	for _, f := range families {
		for _, by := range []struct {
			what       string
			from       *host
			at         netip.AddrPort // of the sender
			seen       netip.Addr     // by the server
			connection bool           // of TCP, too
		}{
			{"a pod", n.nodes[1].guest, netip.AddrPortFrom(n.nodes[1].podAddrs(n.nodes[1].guest)[f], onNode2), n.nodes[1].at(f, 0).Addr(), false},
			{"the node", n.nodes[0].host, n.nodes[0].at(f, onNode1), n.nodes[0].at(f, 0).Addr(), true},
			{"the node that tracks connections", n.nodes[1].host, n.nodes[1].at(f, onNode1), n.nodes[1].at(f, 0).Addr(), true},
		} {
			t.Run(fmt.Sprintf("%s %s", f, by.what), func(t *testing.T) {
				to, want := netip.AddrPortFrom(clientAddr[f], 8080), fmt.Sprintf("outside %s hello", by.seen)
				if by.connection {
					if err := by.from.connectFrom(by.at, to); err != nil {
						t.Errorf("TCP: %v", err)
					}
				}
				if got, err := by.from.askFrom(by.at, to); got != want || err != nil {
					t.Errorf("the first datagram is answered by %q, %v, want %q", got, err, want)
				}
			})
		}
	}
	wantAllAnswers(t, n)
}

// wantAllAnswers asks the NodePorts that others have spoken from.
func wantAllAnswers(t *testing.T, n *network) {
	t.Helper()
	n.allPaths(func(f family, asked, answers *node, to netip.AddrPort) {
		for _, protocol := range []string{"tcp", "udp"} {
			if _, err := n.client.ask(protocol, to); err != nil {
				t.Errorf("%s %s by %s: %v", f, protocol, asked.name, err)
			}
		}
	})
}

// askFrom sends one datagram by a socket without a peer, and returns what is received.
func (h *host) askFrom(from, to netip.AddrPort) (answer string, err error) {
	err = h.Do(func() error {
		s, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(from))
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := s.WriteToUDPAddrPort([]byte("hello"), to); err != nil {
			return err
		}
		_ = s.SetDeadline(time.Now().Add(5 * time.Second))
		b := make([]byte, 100)
		size, _, err := s.ReadFromUDPAddrPort(b)
		answer = string(b[:size])
		return err
	})
	return answer, err
}

// connectFrom opens a connection, and closes it.
func (h *host) connectFrom(from, to netip.AddrPort) error {
	return h.Do(func() error {
		d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(from)}
		c, err := d.Dial("tcp", to.String())
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// TestPacketsForAServiceDoNotGoBack has the router send packets for addresses of Services to a node whose default route is by that router.
func TestPacketsForAServiceDoNotGoBack(t *testing.T) {
	n := newNetwork(t, false)
	n.startAgents()
	for _, f := range families {
		for _, vip := range []netip.Addr{loadBalancer[f], external[f]} {
			to := netip.AddrPortFrom(vip, 81)
			if c, err := n.client.dial("tcp", to); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("TCP to %s: %v, %v, want %v", to, c, err, syscall.ECONNREFUSED)
			}
			before := n.nodes[0].drops(t)["no_service_port"]
			if err := n.client.send(to); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a datagram is dropped", func() error {
				if now := n.nodes[0].drops(t)["no_service_port"]; now != before+1 {
					return fmt.Errorf("%d were dropped, want 1", now-before)
				}
				return nil
			})
		}
	}
}

package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/testenv"
)

// TestConnectionsOutliveHeadgate has connections stand by an agent, to backends here and on the
// other node, and carry something all the time. Rules such as kube-proxy's come, the agent
// ends, and Headgate is removed: the kernel goes on with each of them, and none is delayed by
// a packet that was lost. No signal ends the removal but SIGKILL, after which the next one goes on.
func TestConnectionsOutliveHeadgate(t *testing.T) {
	byNFTables, byIPTables := proxyRules{"nftables", writeNFTables, deleteNFTables, true}, proxyRules{"iptables", writeIPTables, deleteIPTables, true}
	for _, r := range []struct {
		what string
		proxyRules
		flags []string
		amid  []syscall.Signal
	}{
		{"nftables", byNFTables, nil, []syscall.Signal{syscall.SIGKILL}},
		{"iptables", byIPTables, nil, []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}},
		{"nftables, by drivers", byNFTables, byDrivers, []syscall.Signal{syscall.SIGKILL}},
	} {
		t.Run(r.what, func(t *testing.T) {
			if _, err := exec.LookPath(strings.Replace(r.name, "nftables", "nft", 1)); err != nil {
				t.Skip("needs nftables and iptables: apt-get install nftables iptables")
			}
			s := newBesideStage(t)
			if r.flags != nil {
				s.takeDriven()
			}
			for _, node := range s.nodes {
				s.echo(node.pod)
			}
			s.startBeside(t, r.flags...)
			s.holdAll(r.proxyRules)
			port := s.endAtPod2()
			s.writeRules(r.proxyRules)
			s.node.stop()
			over := s.keepTalking(t)
			if r.flags != nil {
				s.node.awaitRepeats(t, "before it is removed")
			}
			s.remove(t, r.amid...)
			over()
			if _, pod := s.openBy(port); pod != s.node.podAddrs(s.node.pod)[0] {
				t.Errorf("a port that comes again has pod %s, want the one that rules have", pod)
			}
		})
	}
}

// remove removes Headgate, with signals when connections begin to be handed over.
func (s *besideStage) remove(t *testing.T, amid ...syscall.Signal) {
	t.Helper()
	said, err := s.cleanUp(t, amid...)
	killed := slices.Contains(amid, syscall.SIGKILL)
	if killed {
		if loose := s.node.loose(); err == nil || loose != "0" {
			t.Errorf("a removal that is killed: %v, and %s is %s", err, looseSetting, loose)
		}
		said, err = s.cleanUp(t)
	}
	var done struct{ HandedOver, Lost int }
	if err := errors.Join(err, json.Unmarshal(said, &done)); err != nil {
		t.Fatalf("the removal: %v: %s", err, said)
	}
	if done.Lost > 0 || !killed && done.HandedOver == 0 {
		t.Errorf("%d connections are handed over, %d are lost", done.HandedOver, done.Lost)
	}
	if loose := s.node.loose(); loose != "1" {
		t.Errorf("after the removal %s is %s, want 1 as before", looseSetting, loose)
	}
}

// cleanUp runs headgate cleanup, and sends it signals, if any, when it begins to hand over.
func (s *besideStage) cleanUp(t *testing.T, amid ...syscall.Signal) (said []byte, err error) {
	t.Helper()
	var out testenv.LockedBuffer
	cmd := exec.Command("/proc/self/exe", "--bpf-root", s.node.root, "cleanup", "-j")
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), asHeadgate+"=1"), &out, os.Stderr
	if err := s.node.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for begun := len(amid) == 0; !begun; {
		select {
		case err := <-ended:
			t.Fatalf("the removal ends before it hands over: %v: %s", err, out.String())
		case <-time.After(time.Millisecond):
			begun = s.node.loose() == "0"
		}
	}
	for _, s := range amid {
		if err := cmd.Process.Signal(s); err != nil {
			t.Error(err)
		}
	}
	err = <-ended
	return []byte(out.String()), err
}

// looseSetting says whether connection tracking takes packets from amid a connection for a new one.
const looseSetting = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"

func (n *node) loose() string {
	n.tb.Helper()
	var text []byte
	n.do(func() (err error) {
		text, err = os.ReadFile(looseSetting)
		return err
	})
	return strings.TrimSpace(string(text))
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

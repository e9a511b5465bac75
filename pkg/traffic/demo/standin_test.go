package demo

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/load"
)

// standInEnv tells the stand-in agent how to misbehave.
const standInEnv = "HEADGATE_TEST_STAND_IN"

// TestMain lets the test program be what the demo starts: a client, the
// cleanup, and a stand-in for the agent, which balances in user space so that
// the story is tested without BPF.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "worker":
		exitWith(load.Serve(context.Background(), os.Stdin, os.Stdout))
	case "agent":
		exitWith(runStandIn(os.Args[2:]))
	case "cleanup":
	default:
		os.Exit(m.Run())
	}
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// faulty is the number of the connection that a stand-in answers late or never:
// one of those that the story begins with.
const faulty = 100

// standIn answers at the Service addresses and passes on what it gets.
type standIn struct {
	manifests string
	fault     string
	endpoints atomic.Pointer[[]netip.Addr]
	accepted  atomic.Int64 // connections
}

func runStandIn(args []string) error {
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	s := &standIn{fault: os.Getenv(standInEnv)}
	flags.StringVar(&s.manifests, "manifests", "", "")
	for _, name := range []string{"node-name", "cgroup", "bpf-root", "state-dir"} {
		flags.String(name, "", "")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if s.fault == "die" {
		return fmt.Errorf("the stand-in dies as asked")
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	s.read()
	if err := s.listen(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		wait(ctx, 2*time.Millisecond)
		if s.fault != "blind" {
			s.read()
		}
	}
	return nil
}

func (s *standIn) read() {
	text, err := os.ReadFile(filepath.Join(s.manifests, "web-endpoints.yaml"))
	if err != nil {
		return
	}
	var found []netip.Addr
	for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" \n[],\"", r) }) {
		if addr, err := netip.ParseAddr(word); err == nil {
			found = append(found, addr)
		}
	}
	s.endpoints.Store(&found)
}

func (s *standIn) listen() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, vip := range clusterIPs {
		bits := vip.BitLen()
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(bits, bits)}, Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
		tcp, err := net.Listen("tcp", netip.AddrPortFrom(vip, tcpPort).String())
		if err != nil {
			return err
		}
		go s.proxyTCP(tcp, vip.Is4())
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip, udpPort)))
		if err != nil {
			return err
		}
		go s.proxyUDP(udp, vip.Is4())
	}
	for i, network := range []string{"tcp4", "tcp6"} {
		nodePort, err := net.Listen(network, fmt.Sprintf(":%d", tcpNodePort))
		if err != nil {
			return err
		}
		go s.proxyTCP(nodePort, i == 0)
	}
	return nil
}

func (s *standIn) choose(is4 bool) netip.Addr {
	for {
		all := *s.endpoints.Load()
		if addr := all[rand.IntN(len(all))]; addr.Is4() == is4 {
			return addr
		}
		if s.fault == "unfair" {
			return backends[0].addrs[map[bool]int{true: 0, false: 1}[is4]]
		}
	}
}

func (s *standIn) proxyTCP(listener net.Listener, is4 bool) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			if s.accepted.Add(1) == faulty {
				switch s.fault {
				case "late":
					time.Sleep(lateAfter + 100*time.Millisecond)
				case "mute":
					time.Sleep(time.Hour)
				}
			}
			server, err := net.Dial("tcp", netip.AddrPortFrom(s.choose(is4), tcpTargetPort).String())
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}

func (s *standIn) proxyUDP(socket *net.UDPConn, is4 bool) {
	buffer := make([]byte, 1500)
	for {
		n, client, err := socket.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		question := bytes.Clone(buffer[:n])
		go func() {
			server, err := net.Dial("udp", netip.AddrPortFrom(s.choose(is4), udpTargetPort).String())
			if err != nil {
				return
			}
			defer server.Close()
			answer := make([]byte, 1500)
			if _, err := server.Write(question); err != nil {
				return
			}
			if n, err := server.Read(answer); err == nil {
				_, _ = socket.WriteToUDPAddrPort(answer[:n], client)
			}
		}()
	}
}

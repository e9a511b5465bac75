package netdev_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

func TestServersAreThoseThatTakeWhatComes(t *testing.T) {
	testenv.Need(t)
	var l net.ListenConfig
	open := func(network, at string) netip.AddrPort {
		t.Helper()
		if network == "udp4" || network == "udp6" {
			c, err := l.ListenPacket(context.Background(), network, at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c.LocalAddr().(*net.UDPAddr).AddrPort()
		}
		s, err := l.Listen(context.Background(), network, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s.Addr().(*net.TCPAddr).AddrPort()
	}
	one, all := open("tcp4", "127.0.0.1:0"), open("tcp", "[::]:0")
	datagrams, six := open("udp4", "127.0.0.1:0"), open("udp6", "[::1]:0")
	c, err := net.Dial("tcp4", one.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	u, err := net.Dial("udp4", datagrams.String())
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()

	got, err := netdev.Servers()
	if err != nil {
		t.Fatal(err)
	}
	at := func(a netip.AddrPort, p lb.Protocol) lb.AddrPort {
		return lb.AddrPort{Addr: a.Addr().Unmap(), Port: a.Port(), Protocol: p}
	}
	for _, want := range []lb.AddrPort{at(one, lb.TCP), at(datagrams, lb.UDP), at(six, lb.UDP),
		{Addr: netip.IPv6Unspecified(), Port: all.Port(), Protocol: lb.TCP}, {Addr: netip.IPv4Unspecified(), Port: all.Port(), Protocol: lb.TCP}} {
		if !got[want] {
			t.Errorf("%s is missing of %v", want, got)
		}
	}
	for _, client := range []lb.AddrPort{at(c.LocalAddr().(*net.TCPAddr).AddrPort(), lb.TCP), at(u.LocalAddr().(*net.UDPAddr).AddrPort(), lb.UDP), at(one, lb.UDP)} {
		if got[client] {
			t.Errorf("%s is no server", client)
		}
	}
}

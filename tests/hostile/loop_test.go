package hostile_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
)

// datagramsOfServices sends datagrams in the name of a Service to that Service, while its server
// answers whatever comes, and the machine outside is a router: each answer is the next question.
func datagramsOfServices(ctx context.Context, s *stage, got *row) {
	const sent = 10
	forward := func(value string) {
		s.do("outside", func() error {
			return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(value), 0)
		})
	}
	forward("1")
	defer forward("0")
	echoed, end := s.echo("web-1", netip.AddrPortFrom(web1Addr, 9999))
	defer end()
	for range sent {
		if err := s.wire.send(segment{from: datagramsIP, to: datagramsIP, payload: []byte("who?")}); err != nil {
			s.tb.Fatal(err)
		}
	}
	<-ctx.Done()
	if n := echoed.Load(); n > sent {
		got.gain("%d datagrams of a Service to itself became %d", sent, n)
	}
}

// echo answers datagrams with what they are, until it is ended, and counts them.
func (s *stage) echo(machine string, at netip.AddrPort) (echoed *atomic.Uint64, end func()) {
	s.tb.Helper()
	echoed = new(atomic.Uint64)
	var c *net.UDPConn
	s.do(machine, func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		return err
	})
	go func() {
		for b := make([]byte, 2048); ; echoed.Add(1) {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	return echoed, func() { _ = c.Close() }
}

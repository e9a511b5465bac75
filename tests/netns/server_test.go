package netns_test

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// backend is a server that says its own address to whoever comes: at once to
// a connection, and to each datagram, which it also repeats.
type backend struct {
	at   lb.AddrPort
	hold chan struct{} // a datagram "hold" is answered when this is closed
}

// name is what the backend says.
func (b *backend) name() string { return b.at.String() }

// addr is the backend without its protocol.
func (b *backend) addr() netip.AddrPort { return netip.AddrPortFrom(b.at.Addr, b.at.Port) }

// mustServe starts a backend at "address:port/TCP" or UDP, and gives the
// address to the loopback device.
func mustServe(tb testing.TB, at string) *backend {
	tb.Helper()
	b := &backend{at: mustAddrPort(at), hold: make(chan struct{})}
	if !b.at.Addr.IsLoopback() {
		testenv.AddAddress(tb, b.at.Addr.String())
	}
	b.mustListen(tb)
	return b
}

// mustListen starts the server in the network namespace of this thread.
func (b *backend) mustListen(tb testing.TB) {
	tb.Helper()
	if b.at.Protocol == lb.UDP {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(b.addr()))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = c.Close() })
		go b.answer(c)
		return
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(b.addr()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	go b.accept(l)
}

func (b *backend) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the test has ended
		}
		go func() {
			defer c.Close()
			if _, err := io.WriteString(c, b.name()); err == nil {
				_, _ = io.Copy(c, c)
			}
		}()
	}
}

func (b *backend) answer(c *net.UDPConn) {
	buf := make([]byte, 256)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		reply := func() { _, _ = c.WriteToUDPAddrPort([]byte(b.name()), from) }
		if strings.HasPrefix(string(buf[:n]), "hold") {
			go func() { <-b.hold; reply() }()
			continue
		}
		reply()
	}
}

// mustAddrPort reads "address:port/TCP".
func mustAddrPort(s string) lb.AddrPort {
	text, protocol, _ := strings.Cut(s, "/")
	a := netip.MustParseAddrPort(text)
	out := lb.AddrPort{Addr: a.Addr(), Port: a.Port(), Protocol: lb.TCP}
	if protocol == "UDP" {
		out.Protocol = lb.UDP
	}
	return out
}

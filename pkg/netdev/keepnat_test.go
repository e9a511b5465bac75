package netdev_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// mustTranslate has clients of this network come to a server by the address of a Service,
// and returns a connection by that.
func mustTranslate(t *testing.T, family, service, server string) net.Conn {
	t.Helper()
	testenv.AddAddress(t, netip.MustParseAddrPort(service).Addr().String())
	l, err := net.Listen("tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	do(t, "nft", "add table "+family+" kube-proxy; add chain "+family+" kube-proxy nat-output { type nat hook output priority -100; }; add rule "+family+
		" kube-proxy nat-output "+family+" daddr "+netip.MustParseAddrPort(service).Addr().String()+" tcp dport 80 dnat to "+server)
	c, err := net.DialTimeout("tcp", service, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	go func() { _, _ = io.Copy(s, s) }()
	return c
}

// works says whether what is sent on a connection comes back.
func works(c net.Conn, within time.Duration) bool {
	if c.SetDeadline(time.Now().Add(within)) != nil {
		return false
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

func TestConnectionsOutliveTheRulesThatTranslateThemWhereThatIsKept(t *testing.T) {
	testenv.EnterNetns(t)
	conns := []net.Conn{
		mustTranslate(t, "ip", "10.96.0.80:80", "127.0.0.1:8080"),
		mustTranslate(t, "ip6", "[fd00:96::80]:80", "[::1]:8080"),
	}
	tracked, err := netdev.TranslatedConnections()
	if err != nil {
		t.Fatal(err)
	}
	var to []string
	for _, c := range tracked {
		to = append(to, c.To.String()+" by "+c.Backend.String())
	}
	if want := []string{"10.96.0.80:80 by 127.0.0.1:8080", "[fd00:96::80]:80 by [::1]:8080"}; !slices.Equal(to, want) {
		t.Errorf("translated are %q, want %q", to, want)
	}
	before := time.Now().Truncate(time.Second)
	for range 2 { // the second time does nothing
		if err := netdev.KeepNAT(); err != nil {
			t.Fatal(err)
		}
	}
	do(t, "nft", "delete table ip kube-proxy; delete table ip6 kube-proxy")
	for i, c := range conns {
		if !works(c, 5*time.Second) {
			t.Errorf("connection %d does not outlive the rules", i)
		}
	}
	kept, since, err := netdev.KeepsNAT()
	if err != nil || !kept || since.Before(before) || since.After(time.Now()) {
		t.Errorf("kept is %t, since %s (%v), want it since %s", kept, since, err, before)
	}
	if got, want := mustChains(t), []string{fmt.Sprintf("inet headgate-keep-nat since-%d hooked nat", since.Unix())}; !slices.Equal(got, want) {
		t.Errorf("chains %q, want %q", got, want)
	}
	for range 2 {
		if err := netdev.DropNAT(); err != nil {
			t.Fatal(err)
		}
	}
	if got := mustChains(t); len(got) > 0 {
		t.Errorf("chains %q are left", got)
	}
	for i, c := range conns { // so it was that which kept them
		if works(c, 300*time.Millisecond) {
			t.Errorf("connection %d works without anybody who translates it", i)
		}
	}
}

// What rules track in a zone is of another network, with addresses of its own.
func TestConnectionsOfAZoneAreNotThoseOfTheNode(t *testing.T) {
	testenv.EnterNetns(t)
	do(t, "nft", "add table inet zones; add chain inet zones out { type filter hook output priority -300; }; add rule inet zones out ct zone set 7")
	if c := mustTranslate(t, "ip", "10.96.0.80:80", "127.0.0.1:8080"); !works(c, 5*time.Second) {
		t.Fatal("the connection does not work")
	}
	if tracked, err := netdev.TranslatedConnections(); err != nil || len(tracked) > 0 {
		t.Errorf("of the node are %v, %v, want none", tracked, err)
	}
}

package kube

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/pkg/lb"
)

func TestWhereServersAreReached(t *testing.T) {
	r := newReached(mustURLs(t, "https://192.0.2.1:6443", "https://[2001:db8::1]", "http://192.0.2.3", "https://localhost:7443")...)
	r.resolve(t.Context())
	r.note(netip.MustParseAddrPort("[::ffff:192.0.2.1]:6443"))
	got := map[string]bool{}
	for _, at := range r.all() {
		got[at.String()] = true
	}
	for _, want := range []string{"192.0.2.1:6443/TCP", "[2001:db8::1]:443/TCP", "192.0.2.3:80/TCP", "127.0.0.1:7443/TCP"} {
		if !got[want] {
			t.Errorf("%s is missing of %v", want, got)
		}
	}
	for i := range mostReached + 1 {
		r.note(netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(i+1)))
	}
	if n := len(r.all()); n != mostReached+3 {
		t.Errorf("%d addresses are kept", n)
	}
}

func TestEveryUpdateSaysWhereServersAre(t *testing.T) {
	a := mustServe(t)
	a.put(service("web", 80))
	s := mustNew(t, a)
	updates := make(chan lb.Update, 100)
	mustRun(t, s, func(u lb.Update) { updates <- u })
	want := []lb.AddrPort{{Addr: netip.MustParseAddrPort(a.addr).Addr(), Port: netip.MustParseAddrPort(a.addr).Port(), Protocol: lb.TCP}}
	if diff := cmp.Diff(want, (<-updates).APIServers, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}

package main

import (
	"net/netip"
	"testing"
)

func TestServicesOfRulesAreThoseThatAreAsked(t *testing.T) {
	p := &forwardPath{services: 5}
	all := p.ruled()
	if len(all) != 6 {
		t.Fatalf("%d Services, want 5, one of them over UDP too", len(all))
	}
	first, _, port := p.target()
	asked := map[string]int{}
	seen := map[netip.AddrPort]bool{}
	for _, s := range all {
		if s.Addr == netip.AddrPortFrom(first.Next(), port) {
			asked[s.Protocol] = len(s.Endpoints)
		} else if len(s.Endpoints) != 1 || seen[s.Endpoints[0]] {
			t.Errorf("%s has endpoints %v, want one of its own", s.Addr, s.Endpoints)
		}
		seen[s.Endpoints[0]] = true
	}
	if asked["tcp"] != forwardBackends || asked["udp"] != forwardBackends {
		t.Errorf("the one that is asked has %v, want %d each", asked, forwardBackends)
	}
}

package lb

import (
	"slices"
	"testing"
)

func TestProbedBackendsAreThoseOfAllViewsThatCanBeAsked(t *testing.T) {
	at := func(last byte, port uint16, p Protocol) AddrPort {
		return AddrPort{addrs("10.0.0.1")[0], port + uint16(last), p}
	}
	one, two, three, datagrams := at(1, 80, TCP), at(2, 80, TCP), at(3, 80, TCP), at(4, 53, UDP)
	frontends := []Frontend{
		{Internal: View{Backends: []AddrPort{two}}, External: View{Backends: []AddrPort{one, two}}, Wider: [2]View{1: {Backends: []AddrPort{three}}}},
		{Internal: View{Backends: []AddrPort{datagrams}}},
	}
	for _, tc := range []struct {
		probe Probe
		want  []AddrPort
	}{
		{Probe{}, nil},
		{Probe{Kind: TCPProbe}, []AddrPort{one, two, three}},
		{Probe{Kind: HTTPProbe, Path: "/", Port: 8080}, []AddrPort{datagrams, one, two, three}},
	} {
		for i := range frontends {
			frontends[i].Health.Probe = tc.probe
		}
		if p, got := Probed(frontends); p != tc.probe || !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %+v %v, want %v", tc.probe, p, got, tc.want)
		}
	}
}

func TestWhoAsksForProbesAvoidsSuspects(t *testing.T) {
	for _, tc := range []struct {
		h     Health
		usual bool
		want  bool
	}{
		{Health{}, true, true},
		{Health{}, false, false},
		{Health{Probe: Probe{Kind: TCPProbe}}, false, true},
		{Health{Passive: SwitchOn}, false, true},
		{Health{Passive: SwitchOff, Probe: Probe{Kind: TCPProbe}}, true, false},
	} {
		if got := tc.h.Avoids(tc.usual); got != tc.want {
			t.Errorf("%+v, usually %v: %v, want %v", tc.h, tc.usual, got, tc.want)
		}
	}
}

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
		{Views: [NumViews]View{Internal: {Backends: []AddrPort{two}}, External: {Backends: []AddrPort{one, two}}, FallbackAll: {Backends: []AddrPort{three}}}},
		{Views: [NumViews]View{Internal: {Backends: []AddrPort{datagrams}}}},
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
			frontends[i].Probe = tc.probe
		}
		if p, got := Probed(frontends); p != tc.probe || !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %+v %v, want %v", tc.probe, p, got, tc.want)
		}
	}
}

func TestWhoAsksForProbesAvoidsEjectedBackends(t *testing.T) {
	for _, tc := range []struct {
		says  Switch
		probe ProbeKind
		usual Switch
		want  Switch
	}{
		{SwitchDefault, NoProbe, SwitchOn, SwitchOn},
		{SwitchDefault, NoProbe, SwitchOff, SwitchOff},
		{SwitchDefault, TCPProbe, SwitchOff, SwitchOn},
		{SwitchOn, NoProbe, SwitchOff, SwitchOn},
		{SwitchOff, TCPProbe, SwitchOn, SwitchOff},
	} {
		p := Policy{Probe: Probe{Kind: tc.probe}, Steering: Steering{PassiveHealth: tc.says}}
		if got := p.Or(Policy{Steering: Steering{PassiveHealth: tc.usual}}).PassiveHealth; got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

package lb

import (
	"reflect"
	"testing"
)

// What a Service asks for reaches each of its frontends, fields added later too.
func TestEveryFrontendHasThePolicyOfItsService(t *testing.T) {
	svc := &Service{
		ServiceName: ServiceName{"default", "web"}, ClusterIPs: addrs("10.96.0.1 fd00::1"), LoadBalancerIPs: addrs("192.0.2.1"), ExternalIPs: addrs("192.0.2.2"),
		Ports: []ServicePort{{Protocol: TCP, Port: 80, NodePort: 30080}},
	}
	for _, of := range []reflect.Value{reflect.ValueOf(&svc.Policy).Elem(), reflect.ValueOf(&svc.Steering).Elem()} {
		for i := range of.NumField() {
			if of.Type().Field(i).Type != reflect.TypeFor[Steering]() {
				mustSet(t, of.Field(i))
			}
		}
	}
	all := Frontends(svc, nil, here)
	if len(all) != 6 {
		t.Fatalf("%d frontends, want 6", len(all))
	}
	for _, f := range all {
		mustDiff(t, svc.Policy, f.Policy)
	}
}

func TestWordsLeaveOutWhatIsUsual(t *testing.T) {
	for _, tc := range []struct {
		s    Steering
		want string
	}{
		{Steering{PassiveHealth: SwitchOn}, ""},
		{Steering{PassiveHealth: SwitchOn, CloseUDP: true}, "udp-close on"},
		{Steering{AffinityTimeout: 600, SlowStart: 30, Spill: 1 << 31}, "affinity 600s passive-health off slow-start 30s spill 50%"},
	} {
		if got := tc.s.Words(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.s, got, tc.want)
		}
	}
}

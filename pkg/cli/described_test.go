package cli

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// Health is ok only where connections have shown it and the endpoint is ready.
func TestABackendThatIsNotReadyIsNotOK(t *testing.T) {
	used := datapath.Load{Connections: 7}
	for _, tc := range []struct {
		state lb.BackendState // "" where no agent says it
		load  datapath.Load
		want  string
	}{
		{lb.StateReady, used, "ok"},
		{lb.StateReady, datapath.Load{}, "unused"},
		{lb.StateUnready, used, "unready"},
		{lb.StateTerminating, used, "terminating"},
		{lb.StateServing, used, "serving"},
		{lb.StateDraining, datapath.Load{}, "draining"},
		{lb.StateUnready, datapath.Load{Connections: 7, Failures: 2}, "2 failed"},
		{lb.StateUnready, datapath.Load{Connections: 7, Ejected: time.Second}, "ejected for 1s"},
		{"", used, "no failures"},
		{"", datapath.Load{}, "unused"},
	} {
		var said *lb.Description
		if tc.state != "" {
			said = &lb.Description{State: tc.state}
		}
		d := describe(said, tc.load)
		if got := d.health(tc.load); got != tc.want {
			t.Errorf("%q, %+v: %q, want %q", tc.state, tc.load, got, tc.want)
		}
	}
}

func TestABackendHasTheStateAndThePodOfEachService(t *testing.T) {
	at := lb.AddrPort{Addr: netip.MustParseAddr("10.0.0.1"), Port: 8080, Protocol: lb.TCP}
	port := func(namespace, name, port string) plan.Service {
		return plan.Service{ServiceName: lb.ServiceName{Namespace: namespace, Name: name}, Port: port, Protocol: lb.TCP}
	}
	shop, web, admin := port("store", "shop", "http"), port("default", "web", "http"), port("default", "web", "admin")
	said := &lb.Told{}
	said.Add(lb.Description{Backend: at, Service: web.ServiceName, Pod: lb.PodName{Namespace: "default", Name: "web-0"}, State: lb.StateReady})
	said.Add(lb.Description{Backend: at, Service: shop.ServiceName, State: lb.StateUnready})
	both := backend{at: at, Services: texts[plan.Service]{shop, web, admin}, Load: datapath.Load{Connections: 1}}
	both.describeFor(said)
	for title, want := range map[string][]string{
		"STATE":  {"unready", "ready", "ready"},
		"HEALTH": {"unready", "ok", "ok"},
		"POD":    {"-", "default/web-0", "default/web-0"},
	} {
		i := slices.IndexFunc(backends.columns, func(c column[backend]) bool { return c.title == title })
		if got := lines(backends.columns[i].of(both)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", title, got, want)
		}
	}
	if both.State != string(lb.StateReady) || !slices.Contains(both.names(), "web-0") || both.called("web-0") != "default/web-0" {
		t.Errorf("%+v", both)
	}
	alike := backend{at: at, Services: texts[plan.Service]{web, admin}}
	alike.describeFor(said)
	if alike.ByService != nil || alike.State != string(lb.StateReady) || alike.Pod != "default/web-0" {
		t.Errorf("two ports of a Service: %+v", alike)
	}
}

// The kernel counts by backend, so that a Service port knows of shared ones only how many are its own at most.
func TestConnectionsInFlightAtSharedBackendsAreABound(t *testing.T) {
	for want, s := range map[string]*service{
		"367":  {InFlight: 367},
		"≤367": {InFlight: 367, InFlightShared: 1},
		"0":    {},
	} {
		if got := lines(s.flights())[0]; got != want {
			t.Errorf("%+v: %s, want %s", s, got, want)
		}
	}
	if compareCells((&service{InFlight: 9, InFlightShared: 9}).flights(), (&service{InFlight: 10}).flights()) <= 0 {
		t.Error("9 at most are before 10")
	}
	if compareCells((&service{Ready: new(9), Backends: 12}).readiness(), (&service{Ready: new(10), Backends: 10}).readiness()) <= 0 {
		t.Error("9/12 is before 10/10")
	}
}

func TestTheReasonsOfRefusalsAndFailuresStandInTheTextToo(t *testing.T) {
	one := &service{Drops: map[string]uint64{"no_endpoint": 3, "source_range": 4}, Traffic: datapath.Traffic{Failed: datapath.Failures{Refused: 17}}}
	rows := services.untyped().inFull(one)
	got := rows[len(rows)-3:]
	if want := [][]string{{"refused no_endpoint", "3"}, {"refused source_range", "4"}, {"failed refused", "17"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q at the end", got, want)
	}
}

func TestALowerBoundOfAResponseTimeIsShownAsOne(t *testing.T) {
	for want, l := range map[string]datapath.Load{
		"-":          {},
		"1.5ms":      {Response: 1500 * time.Microsecond},
		"≥1.048575s": {Response: 1048575 * time.Microsecond, ResponseAtLeast: true},
	} {
		if got := lines(response(l))[0]; got != want {
			t.Errorf("%+v: %s, want %s", l, got, want)
		}
	}
	if compareCells(response(datapath.Load{Response: time.Second, ResponseAtLeast: true}), response(datapath.Load{Response: time.Millisecond})) >= 0 {
		t.Error("≥1s is behind 1ms")
	}
}

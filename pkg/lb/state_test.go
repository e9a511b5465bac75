package lb

import (
	"strings"
	"testing"
)

// The names of the Services that the tests below are about, in order.
var (
	apiName  = ServiceName{"default", "api"}
	webName  = ServiceName{"default", "web"}
	otherWeb = ServiceName{"other", "web"}
)

// names prints Service names, separated by spaces.
func names(all []ServiceName) string {
	var texts []string
	for _, n := range all {
		texts = append(texts, n.String())
	}
	return strings.Join(texts, " ")
}

// service returns a Service with port http.
func service(name ServiceName, clusterIP string) *Service {
	return &Service{ServiceName: name, ClusterIPs: addrs(clusterIP), Ports: []ServicePort{httpPort}}
}

// services makes an update that brings Services.
func services(all ...*Service) Update {
	u := Update{Services: map[ServiceName]*Service{}}
	for _, s := range all {
		u.Services[s.ServiceName] = s
	}
	return u
}

// withSlices makes an update that brings slices.
func withSlices(all ...*Slice) Update {
	u := Update{Slices: map[SliceName]*Slice{}}
	for _, s := range all {
		u.Slices[s.SliceName] = s
	}
	return u
}

// of gives a slice to another Service of its namespace.
func of(service string, s *Slice) *Slice {
	s.Service = service
	return s
}

func TestApplyNamesWhatChanged(t *testing.T) {
	st := NewState()
	node := Node{Name: "node-1", Zone: "zone-a"}
	moved := Node{Name: "node-1", Zone: "zone-b"}
	for _, step := range []struct {
		name   string
		update Update
		want   string
	}{
		{"nothing changes nothing", Update{}, ""},
		{"new Services, in order", services(service(otherWeb, "172.16.0.3"), service(webName, "172.16.0.1"), service(apiName, "172.16.0.2")),
			"default/api default/web other/web"},
		{"an equal Service", services(service(webName, "172.16.0.1")), ""},
		{"a Service that differs", services(service(webName, "172.16.0.9")), "default/web"},
		{"a new slice", withSlices(mustSlice(t, "a", "10.0.0.1 ready zones=zone-a")), "default/web"},
		{"an equal slice", withSlices(mustSlice(t, "a", "10.0.0.1 ready zones=zone-a")), ""},
		{"a hint changes", withSlices(mustSlice(t, "a", "10.0.0.1 ready zones=zone-b")), "default/web"},
		{"a slice and its Service are one change", Update{
			Services: map[ServiceName]*Service{webName: service(webName, "172.16.0.1")},
			Slices:   map[SliceName]*Slice{web("b"): mustSlice(t, "b", "10.0.0.2 ready")}}, "default/web"},
		{"a slice moves by label: both", withSlices(of("api", mustSlice(t, "a", "10.0.0.1 ready"))), "default/api default/web"},
		{"a slice loses its label: the one that had it", withSlices(of("", mustSlice(t, "a", "10.0.0.1 ready"))), "default/api"},
		{"a slice without a label", withSlices(of("", mustSlice(t, "c", "10.0.0.1 ready"))), ""},
		{"a slice of a Service not known yet", withSlices(of("late", mustSlice(t, "l", "10.0.0.7 ready"))), "default/late"},
		{"the node becomes known: all Services", Update{Node: &node}, "default/api default/web other/web"},
		{"an equal node", Update{Node: &Node{Name: "node-1", Zone: "zone-a"}}, ""},
		{"the node changes zone", Update{Node: &moved}, "default/api default/web other/web"},
		{"an unknown slice goes", Update{Slices: map[SliceName]*Slice{web("x"): nil}}, ""},
		{"a slice goes", Update{Slices: map[SliceName]*Slice{web("b"): nil}}, "default/web"},
		{"the same slice goes again", Update{Slices: map[SliceName]*Slice{web("b"): nil}}, ""},
		{"an unknown Service goes", Update{Services: map[ServiceName]*Service{{"default", "x"}: nil}}, ""},
		{"a Service goes", Update{Services: map[ServiceName]*Service{webName: nil}}, "default/web"},
		{"the same Service goes again", Update{Services: map[ServiceName]*Service{webName: nil}}, ""},
		{"problems are not for the state", Update{Problems: []Problem{{Reason: "x"}}, Frozen: map[ServiceName]bool{apiName: true}, Partial: true}, ""},
	} {
		if got := names(st.Apply(step.update)); got != step.want {
			t.Errorf("%s: changed %q, want %q", step.name, got, step.want)
		}
	}
	mustDiff(t, "default/api other/web", names(st.Services()))
	mustDiff(t, moved, st.Node())
}

func TestStateFrontends(t *testing.T) {
	st := NewState()
	check := func(step string, want ...string) {
		t.Helper()
		t.Run(step, func(t *testing.T) { t.Helper(); mustDiff(t, want, text(st.Frontends(webName))) })
	}
	check("an unknown Service has none")
	st.Apply(withSlices(mustSlice(t, "b", "10.0.0.2 ready"), mustSlice(t, "a", "10.0.0.1 ready")))
	check("slices alone make none")
	st.Apply(services(service(webName, "172.16.0.1")))
	check("all slices count", "ClusterIP 172.16.0.1:80/TCP in[10.0.0.1 10.0.0.2] out[10.0.0.1 10.0.0.2]")
	st.Apply(withSlices(mustSlice(t, "a", "10.0.0.3 ready")))
	check("a slice is replaced", "ClusterIP 172.16.0.1:80/TCP in[10.0.0.2 10.0.0.3] out[10.0.0.2 10.0.0.3]")
	st.Apply(withSlices(of("api", mustSlice(t, "b", "10.0.0.2 ready"))))
	check("a slice moves away", "ClusterIP 172.16.0.1:80/TCP in[10.0.0.3] out[10.0.0.3]")
	foreign := mustSlice(t, "a", "10.0.0.9 ready")
	foreign.Namespace = "other"
	st.Apply(withSlices(foreign))
	check("a slice of another namespace is another's", "ClusterIP 172.16.0.1:80/TCP in[10.0.0.3] out[10.0.0.3]")
	st.Apply(Update{Slices: map[SliceName]*Slice{web("a"): nil}})
	check("the last slice goes", "ClusterIP 172.16.0.1:80/TCP in[] out[]")
	st.Apply(Update{Services: map[ServiceName]*Service{webName: nil}})
	check("the Service goes")
}

func TestStateFrontendsLookFromTheNode(t *testing.T) {
	st := NewState()
	svc := service(webName, "172.16.0.1")
	svc.InternalPolicy = PolicyLocal
	st.Apply(services(svc))
	st.Apply(withSlices(oneHereOneAway(t)...))
	mustDiff(t, []string{"ClusterIP 172.16.0.1:80/TCP in[no-local] out[no-local]"}, text(st.Frontends(webName)))
	st.Apply(Update{Node: &here})
	mustDiff(t, []string{"ClusterIP 172.16.0.1:80/TCP in[10.0.0.1] out[10.0.0.1]"}, text(st.Frontends(webName)))
}

func TestKnown(t *testing.T) {
	st := NewState()
	check := func(step string, wantService, wantSlices bool) {
		t.Helper()
		if service, slices := st.Seen(webName); service != wantService || slices != wantSlices {
			t.Errorf("%s: known %t, %t, want %t, %t", step, service, slices, wantService, wantSlices)
		}
	}
	check("nothing yet", false, false)
	st.Apply(withSlices(mustSlice(t, "a", "")))
	check("a slice without endpoints is a slice", false, true)
	st.Apply(services(service(webName, "172.16.0.1")))
	check("both", true, true)
	st.Apply(withSlices(of("api", mustSlice(t, "a", ""))))
	check("the slice moved away", true, false)
	st.Apply(Update{Services: map[ServiceName]*Service{webName: nil}})
	check("gone", false, false)
}

// What is forgotten must not stay behind in memory.
func TestStateForgets(t *testing.T) {
	st := NewState()
	st.Apply(services(service(webName, "172.16.0.1")))
	st.Apply(withSlices(oneHereOneAway(t)...))
	st.Apply(Update{
		Services: map[ServiceName]*Service{webName: nil},
		Slices:   map[SliceName]*Slice{web("v4"): nil, web("v6"): nil},
	})
	mustDiff(t, 0, len(st.services)+len(st.slices)+len(st.byService))
}

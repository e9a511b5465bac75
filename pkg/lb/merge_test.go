package lb

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

var httpPort = ServicePort{Name: "http", Protocol: TCP, Port: 80}

// mergedText merges and prints one candidate a line, with its conditions.
func mergedText(from []*Slice, port ServicePort, family string) []string {
	var all []string
	for _, one := range merge(from, port, addrs(family)[0]) {
		e := one.endpoint
		all = append(all, fmt.Sprintf("%s ready=%t serving=%t terminating=%t node=%q",
			one.backend, e.Ready, e.Serving, e.Terminating, e.Where.Topology().Node))
	}
	return all
}

// withPorts gives a slice other ports.
func withPorts(s *Slice, ports ...SlicePort) *Slice {
	s.Ports = ports
	return s
}

func TestMerge(t *testing.T) {
	const ready = " ready=true serving=true terminating=false"
	for _, tc := range []struct {
		name   string
		family string // an address of it, IPv4 where empty
		from   []*Slice
		want   []string
	}{
		{name: "no slices, no endpoints"},
		{name: "the endpoints of all slices are there, sorted",
			from: []*Slice{mustSlice(t, "b", "10.0.1.2 ready"), mustSlice(t, "a", "10.0.1.10 ready; 10.0.1.1 ready")},
			want: []string{"10.0.1.1:8080/TCP" + ready + ` node=""`, "10.0.1.2:8080/TCP" + ready + ` node=""`, "10.0.1.10:8080/TCP" + ready + ` node=""`}},
		{name: "with duplicate endpoints, prefer non-terminating",
			from: []*Slice{mustSlice(t, "a", "10.0.1.1 serving terminating; 10.0.1.1 ready; 10.0.1.1 terminating")},
			want: []string{"10.0.1.1:8080/TCP" + ready + ` node=""`}},
		{name: "a non-terminating endpoint that is not ready still wins over a serving terminating one",
			from: []*Slice{mustSlice(t, "a", "10.0.1.1 serving terminating"), mustSlice(t, "b", "10.0.1.1 unready")},
			want: []string{`10.0.1.1:8080/TCP ready=false serving=false terminating=false node=""`}},
		{name: "of two non-terminating duplicates the ready one wins",
			from: []*Slice{mustSlice(t, "a", "10.0.1.1 serving on=x"), mustSlice(t, "b", "10.0.1.1 ready on=a")},
			want: []string{"10.0.1.1:8080/TCP" + ready + ` node="a"`}},
		{name: "of two terminating duplicates the serving one wins",
			from: []*Slice{mustSlice(t, "a", "10.0.1.1 terminating on=x"), mustSlice(t, "b", "10.0.1.1 serving terminating on=a")},
			want: []string{`10.0.1.1:8080/TCP ready=false serving=true terminating=true node="a"`}},
		{name: "of two ready duplicates the one on a known node wins",
			from: []*Slice{mustSlice(t, "a", "10.0.1.1 ready"), mustSlice(t, "b", "10.0.1.1 ready on=node-1")},
			want: []string{"10.0.1.1:8080/TCP" + ready + ` node="node-1"`}},
		{name: "endpoints of the other family are left out",
			from: []*Slice{mustSlice(t, "a", "10.0.1.1 ready; fd00::1 ready")},
			want: []string{"10.0.1.1:8080/TCP" + ready + ` node=""`}},
		{name: "of a mixed slice IPv6 finds its own", family: "fd00::",
			from: []*Slice{mustSlice(t, "a", "10.0.1.1 ready; fd00::1 ready")},
			want: []string{"[fd00::1]:8080/TCP" + ready + ` node=""`}},
		{name: "a slice port of another name or protocol is left out",
			from: []*Slice{withPorts(mustSlice(t, "a", "10.0.1.1 ready"),
				SlicePort{"https", TCP, 8443}, SlicePort{"http", UDP, 8081}, SlicePort{"", TCP, 8082})}},
		{name: "one Service port stands for different numbers in different slices",
			from: []*Slice{
				withPorts(mustSlice(t, "a", "10.0.1.1 ready"), SlicePort{"http", TCP, 9090}),
				mustSlice(t, "b", "10.0.1.1 ready")},
			want: []string{"10.0.1.1:8080/TCP" + ready + ` node=""`, "10.0.1.1:9090/TCP" + ready + ` node=""`}},
		{name: "an endpoint without an address is left out",
			from: []*Slice{{SliceName: web("a"), Ports: []SlicePort{{"http", TCP, 8080}}, Endpoints: []Endpoint{{Ready: true}}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.family == "" {
				tc.family = "10.0.0.0"
			}
			mustDiff(t, tc.want, mergedText(tc.from, httpPort, tc.family))
		})
	}
}

// An unnamed Service port, the only one of its Service, has an unnamed slice
// port behind it.
func TestMergeOfUnnamedPort(t *testing.T) {
	from := []*Slice{withPorts(mustSlice(t, "a", "10.0.1.1 ready"), SlicePort{"", TCP, 8080})}
	got := mergedText(from, ServicePort{Protocol: TCP, Port: 80}, "10.0.0.0")
	mustDiff(t, 1, len(got))
}

func TestMergeIsTheSameInAnyOrder(t *testing.T) {
	text := `10.0.1.1 ready on=a zones=z; 10.0.1.1 ready on=a zones=y; 10.0.1.1 ready on=a nodes=n
		10.0.1.4 ready on=a nodes=n; 10.0.1.4 ready on=a nodes=m; 10.0.1.4 ready on=a nodes=m zones=z
		10.0.1.1 serving terminating; 10.0.1.2 terminating; 10.0.1.2 serving terminating on=b; 10.0.1.3 ready`
	want := merge([]*Slice{mustSlice(t, "a", text)}, httpPort, addrs("10.0.0.0")[0])
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		endpoints := mustEndpoints(t, text)
		rng.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
		cut := rng.IntN(len(endpoints))
		first, second := mustSlice(t, "a", ""), mustSlice(t, "b", "")
		first.Endpoints, second.Endpoints = endpoints[:cut], endpoints[cut:]
		got := merge([]*Slice{first, second}, httpPort, addrs("10.0.0.0")[0])
		same := slices.EqualFunc(want, got, func(a, b candidate) bool {
			return a.backend == b.backend && *a.endpoint == *b.endpoint
		})
		if !same {
			t.Fatalf("order %v of the endpoints changes the result", endpoints)
		}
	}
}

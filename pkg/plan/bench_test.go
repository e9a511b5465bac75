package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// manyFrontends returns Services with one frontend and ten backends each.
func manyFrontends(services int) (names []lb.ServiceName, frontends [][]lb.Frontend) {
	for i := range services {
		var f lb.Frontend
		f.AddrPort = lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80, Protocol: lb.TCP}
		for k := range 10 {
			a := netip.AddrFrom4([4]byte{10, byte(128 + k), byte(i >> 8), byte(i)})
			f.Views[lb.Internal].Backends = append(f.Views[lb.Internal].Backends, lb.AddrPort{Addr: a, Port: 8080, Protocol: lb.TCP})
		}
		f.Views[lb.External].Backends = append(f.Views[lb.External].Backends, f.Views[lb.Internal].Backends...)
		names = append(names, lb.ServiceName{Namespace: "default", Name: fmt.Sprint("web-", i)})
		frontends = append(frontends, []lb.Frontend{f})
	}
	return names, frontends
}

// A cold start: 10,000 Services with ten backends each.
func BenchmarkFill(b *testing.B) {
	names, frontends := manyFrontends(10_000)
	b.ReportAllocs()
	for b.Loop() {
		fill(b, New(Sizes{}), names, frontends)
	}
}

// A restart: the same is there already.
func BenchmarkAdopt(b *testing.B) {
	names, frontends := manyFrontends(10_000)
	var m Model
	for _, op := range fill(b, New(Sizes{}), names, frontends) {
		m.Apply(op)
	}
	c := m.Content()
	b.ReportAllocs()
	for b.Loop() {
		p, err := Adopt(c, Sizes{})
		if err != nil {
			b.Fatal(err)
		}
		if ops := fill(b, p, names, frontends); len(ops) > 0 {
			b.Fatalf("%d operations, the first: %s", len(ops), ops[0])
		}
	}
}

func fill(tb testing.TB, p *Planner, names []lb.ServiceName, frontends [][]lb.Frontend) (ops []Op) {
	tb.Helper()
	for i, name := range names {
		more, err := p.Set(name, frontends[i])
		if err != nil {
			tb.Fatal(err)
		}
		ops = append(ops, more...)
	}
	return ops
}

// One endpoint of a Service with many, in slices of 100, changes: from the slice
// to the operations, and a sweep now and then.
func BenchmarkOneEndpointOfMany(b *testing.B) {
	for _, n := range []int{500, 5000, 50000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			st, p, name := manyEndpoints(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				st.Apply(oneSlice(hundred(n/200, n/100+i%1000)))
				if ops := set(b, st, p, name); len(ops) == 0 {
					b.Fatal("nothing changed")
				}
				if i%10 == 9 {
					p.Sweep()
				}
			}
		})
	}
}

// manyEndpoints returns a planner that has a Service with so many endpoints.
func manyEndpoints(tb testing.TB, endpoints int) (*lb.State, *Planner, lb.ServiceName) {
	st, p := lb.NewState(), New(Sizes{})
	svc := &lb.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: "web"},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []lb.ServicePort{{Name: "http", Protocol: lb.TCP, Port: 80}}}
	st.Apply(lb.Update{Services: map[lb.ServiceName]*lb.Service{svc.ServiceName: svc}})
	for i := range endpoints / 100 {
		st.Apply(oneSlice(hundred(i, i)))
	}
	set(tb, st, p, svc.ServiceName)
	return st, p, svc.ServiceName
}

func oneSlice(s *lb.Slice) lb.Update {
	return lb.Update{Slices: map[lb.SliceName]*lb.Slice{s.SliceName: s}}
}

// hundred returns a slice of a hundred endpoints, the last of which depends on a
// version.
func hundred(number, version int) *lb.Slice {
	s := &lb.Slice{SliceName: lb.SliceName{Namespace: "default", Name: fmt.Sprintf("web-%05d", number)}, Service: "web",
		Ports: []lb.SlicePort{{Name: "http", Protocol: lb.TCP, Port: 8080}}}
	for k := range 100 {
		at := number
		if k == 99 {
			at = version + 600
		}
		s.Endpoints = append(s.Endpoints, lb.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(at >> 8), byte(at), byte(k)}), Ready: true, Serving: true})
	}
	return s
}

func set(tb testing.TB, st *lb.State, p *Planner, name lb.ServiceName) []Op {
	tb.Helper()
	ops, err := p.Set(name, st.Frontends(name))
	if err != nil {
		tb.Fatal(err)
	}
	p.TakeLosses()
	return ops
}

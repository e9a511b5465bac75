package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// bigSlices returns n ready endpoints in slices of 100, out of order, one in
// ten on the node here.
func bigSlices(n int) []*Slice {
	rng := rand.New(rand.NewPCG(4, 4))
	var all []*Slice
	for i, k := range rng.Perm(n) {
		if i%100 == 0 {
			all = append(all, &Slice{
				SliceName: web(fmt.Sprint(i)), Service: "web",
				Ports: []SlicePort{{"http", TCP, 8080}},
			})
		}
		last := all[len(all)-1]
		last.Endpoints = append(last.Endpoints, Endpoint{
			Addr:  netip.AddrFrom4([4]byte{10, 0, byte(k >> 8), byte(k)}),
			Ready: true, Serving: true, Where: Topology{Node: fmt.Sprint("node-", k%10), ZoneHints: "zone-a"}.Share(),
		})
	}
	return all
}

// One frontend of each kind, 5,000 endpoints, policy Local on the outside.
func BenchmarkFrontends(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 5000} {
		b.Run(fmt.Sprint("endpoints=", n), func(b *testing.B) {
			svc, from := everyKind(), bigSlices(n)
			svc.ClusterIPs, svc.ExternalPolicy = svc.ClusterIPs[:1], PolicyLocal
			b.ReportAllocs()
			for b.Loop() {
				Frontends(svc, from, here)
			}
		})
	}
}

// One endpoint of a Service with ten changes: how many other Services there are
// must not show.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 10000} {
		b.Run(fmt.Sprint("services=", n), func(b *testing.B) {
			st, names := NewState(), make([]ServiceName, n)
			for i := range n {
				name := ServiceName{"default", fmt.Sprint("web-", i)}
				names[i] = name
				st.Apply(services(service(name, "172.16.0.1")))
				st.Apply(withSlices(tenEndpoints(name, i+1)))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				for _, name := range st.Apply(withSlices(tenEndpoints(names[i%n], i))) {
					st.Frontends(name)
				}
			}
		})
	}
}

// tenEndpoints returns a slice of ten endpoints, the last depending on i.
func tenEndpoints(svc ServiceName, i int) *Slice {
	s := &Slice{SliceName: SliceName(svc), Service: svc.Name, Ports: []SlicePort{{"http", TCP, 8080}}}
	for k := range 10 {
		s.Endpoints = append(s.Endpoints, Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, 0, byte(i * (k / 9)), byte(k)}), Ready: true, Serving: true,
		})
	}
	return s
}

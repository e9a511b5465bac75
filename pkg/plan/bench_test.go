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
			f.Internal.Backends = append(f.Internal.Backends, lb.AddrPort{Addr: a, Port: 8080, Protocol: lb.TCP})
		}
		f.External.Backends = append(f.External.Backends, f.Internal.Backends...)
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

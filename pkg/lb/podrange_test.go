package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// An address is found in the longest prefix that has it, whatever Nodes had before.
func TestAPodRangeIsFoundByItsAddresses(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	some := func() netip.Addr {
		if r.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(r.IntN(2)), byte(r.IntN(4)), byte(r.IntN(256))})
		}
		return netip.AddrFrom16([16]byte{0: 0xfd, 7: byte(r.IntN(2)), 8: byte(r.IntN(4)), 15: byte(r.IntN(256))})
	}
	var ranges podRanges
	all := map[string][]netip.Prefix{}
	found := 0
	for range 20000 {
		node, addr := fmt.Sprint("n", r.IntN(8)), some()
		all[node] = nil
		for range r.IntN(3) {
			a := some()
			p, _ := a.Prefix(r.IntN(a.BitLen() + 1))
			all[node] = append(all[node], p)
		}
		ranges.put(node, all[node])
		want, of := netip.Prefix{}, ""
		for n, prefixes := range all {
			for _, p := range prefixes {
				if p.Contains(addr) && (of == "" || p.Bits() > want.Bits() || p == want && n < of) {
					want, of = p, n
				}
			}
		}
		got, node, ok := ranges.find(addr)
		if ok != (of != "") || node != of || ok && got != want {
			t.Fatalf("%s is found in %s of %q, %t; want %s of %q; of %v", addr, got, node, ok, want, of, all)
		}
		if ok {
			found++
		}
	}
	if found < 1000 || found > 19000 {
		t.Errorf("%d of 20000 are found", found)
	}
	for node := range all {
		ranges.put(node, nil)
	}
	if len(ranges.of)+len(ranges.nodes) > 0 || ranges.lengths != (podRanges{}).lengths {
		t.Errorf("when all Nodes are gone this is left: %+v", ranges)
	}
}

// A Node that comes, changes or goes changes the Services that ask for an address in its ranges, and no others.
func TestAPodRangeOfANodeDecides(t *testing.T) {
	st := NewState()
	other := ServiceName{Namespace: "attacker", Name: "other"}
	st.Apply(Update{Services: map[ServiceName]*Service{
		attacker: withExternalIPs(attacker, "172.16.0.2", "10.244.2.50"), other: withExternalIPs(other, "172.16.0.3", "10.244.3.50"),
	}})
	for _, step := range []struct {
		what, node, ranges string
		dirty              []ServiceName
		refused            int
	}{
		{"a Node comes", "b", "10.244.2.0/24", []ServiceName{attacker}, 1},
		{"nothing changes", "b", "10.244.2.0/24", nil, 1},
		{"another Node has it as well", "c", "10.244.2.0/24", []ServiceName{attacker}, 1},
		{"the first one has another", "b", "10.244.3.0/24", []ServiceName{attacker, other}, 2},
		{"the other one is gone", "c", "", []ServiceName{attacker}, 1},
		{"a Node elsewhere", "d", "10.244.4.0/24", nil, 1},
		{"the first one is gone", "b", "", []ServiceName{other}, 0},
		{"a Node that was never there is gone", "e", "", nil, 0},
	} {
		mustDiff(t, step.dirty, st.Apply(Update{PodRanges: map[string][]netip.Prefix{step.node: prefixes(step.ranges)}}))
		if got := len(st.Problems()); got != step.refused {
			t.Errorf("%s: %d are refused, want %d", step.what, got, step.refused)
		}
	}
}

// Load balancers may have addresses of pods, and a Service that of its own endpoint.
func TestAPodRangeLeavesLoadBalancersAndOwnEndpointsAlone(t *testing.T) {
	st := NewState()
	slice := &Slice{SliceName: SliceName{Namespace: "attacker", Name: "x"}, Service: "aaa", Endpoints: mustEndpoints(t, "10.244.2.10 ready")}
	balanced := withExternalIPs(victim, "172.16.0.1", "")
	balanced.LoadBalancerIPs = addrs("10.244.2.11")
	st.Apply(Update{
		PodRanges: map[string][]netip.Prefix{"b": prefixes("10.244.2.0/24")}, Slices: map[SliceName]*Slice{slice.SliceName: slice},
		Services: map[ServiceName]*Service{attacker: withExternalIPs(attacker, "172.16.0.2", "10.244.2.10"), victim: balanced},
	})
	mustDiff(t, []Problem(nil), st.Problems())
	mustDiff(t, []int{2, 2}, []int{len(st.Frontends(attacker)), len(st.Frontends(victim))})
	st.Apply(Update{Slices: map[SliceName]*Slice{slice.SliceName: nil}})
	mustDiff(t, 1, len(st.Problems()))
}

// BenchmarkPodRange looks for an address among the ranges of many Nodes.
func BenchmarkPodRange(b *testing.B) {
	for _, nodes := range []int{1, 5000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			var ranges podRanges
			for i := range nodes {
				at := [16]byte{0: 0xfd, 6: byte(i >> 8), 7: byte(i)}
				ranges.put(fmt.Sprint(i), []netip.Prefix{
					netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), netip.PrefixFrom(netip.AddrFrom16(at), 64)})
			}
			addr := netip.MustParseAddr("fd01::1")
			for b.Loop() {
				ranges.find(addr)
			}
		})
	}
}

package datapath_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// What one agent has written, the next one finds: with the same input it writes
// nothing. So it is for every zone policy and algorithm, whatever of the endpoints
// is ready, near or heavy.
func TestWhatWasWrittenForAnyPolicyIsAdoptedWithoutAWrite(t *testing.T) {
	services := map[lb.ServiceName][]lb.Frontend{}
	for z := range lb.ZonePolicies() {
		for a := range int(lb.Latency) + 1 {
			for k, endpoints := range endpointsToChoose() {
				svc := &lb.Service{
					ServiceName: lb.ServiceName{Namespace: "default", Name: fmt.Sprintf("s-%d-%d-%d", z, a, k)},
					ClusterIPs:  []netip.Addr{netip.AddrFrom4([4]byte{10, 96 + byte(z), byte(a), byte(k)})},
					Ports:       []lb.ServicePort{{Name: "http", Protocol: lb.TCP, Port: 80, NodePort: uint16(30000 + 1000*z + 10*a + k)}},
					Policy:      lb.Policy{Zones: lb.ZonePolicy(z), Algorithm: lb.Algorithm(a), TableSize: 31},
				}
				slice := &lb.Slice{Service: svc.Name, Ports: []lb.SlicePort{{Name: "http", Protocol: lb.TCP, Port: 8080}}, Endpoints: endpoints}
				services[svc.ServiceName] = lb.Frontends(svc, []*lb.Slice{slice}, lb.Node{Name: "node-a", Zone: "zone-a"})
			}
		}
	}
	wantAdoptedWithoutAWrite(t, services)
}

// endpointsToChoose are lists of endpoints of which zone policies prefer some: all
// ready, one in the zone of the node not ready, of different weights, one drained.
func endpointsToChoose() [][]lb.Endpoint {
	lists := make([][]lb.Endpoint, 4)
	for k := range lists {
		for i, zone := range []string{"zone-a", "zone-a", "zone-b", "zone-b", "zone-c"} {
			lists[k] = append(lists[k], lb.Endpoint{
				Addr: netip.AddrFrom4([4]byte{10, 244, byte(i), 1}), Ready: true, Serving: true,
				Where: lb.Topology{Node: fmt.Sprintf("node-%c", 'a'+i), Zone: zone}.Share(),
			})
		}
	}
	lists[1][1].Ready = false
	lists[2][0].Weight, lists[2][3].Weight = 3, 7
	lists[3][0].Drained = true
	return lists
}

// The same of frontends in which every field has a value, those added later too.
func TestEveryFieldOfAFrontendIsAdoptedWithoutAWrite(t *testing.T) {
	services := map[lb.ServiceName][]lb.Frontend{}
	for seed := range 100 {
		r := &drawer{tb: t, rand: rand.New(rand.NewPCG(uint64(seed), 0))}
		var f lb.Frontend
		r.draw(reflect.ValueOf(&f).Elem())
		f.AddrPort = lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(seed)}), Port: 80, Protocol: lb.TCP}
		services[lb.ServiceName{Namespace: "default", Name: fmt.Sprint("web-", seed)}] = []lb.Frontend{f}
	}
	wantAdoptedWithoutAWrite(t, services)
}

// wantAdoptedWithoutAWrite writes Services to maps, reads these as the next agent
// does, and has it set the same Services.
func wantAdoptedWithoutAWrite(t *testing.T, services map[lb.ServiceName][]lb.Frontend) {
	t.Helper()
	cfg := config(t)
	cfg.Sizes = plan.Sizes{Frontends: 1024, Slots: 1 << 20, Backends: 1024, Services: 1024, Addresses: 1024}
	d := mustOpen(t, cfg)
	p := plan.New(plan.Sizes{})
	var written plan.Model
	for name, frontends := range services {
		ops := mustPlan(t, p, name, frontends)
		mustApply(t, d, ops...)
		for _, op := range ops {
			written.Apply(op)
		}
	}
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	d.Close()

	content, err := mustOpen(t, cfg).Content()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written.Content(), content, cmpopts.EquateComparable(netip.Addr{}, plan.SourceRange{}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the maps hold (-written +read):\n%.3000s", diff)
	}
	if p, err = plan.Adopt(content, plan.Sizes{}); err != nil {
		t.Fatalf("adopt: %v", err)
	}
	for name, frontends := range services {
		if ops := mustPlan(t, p, name, frontends); len(ops) > 0 {
			t.Errorf("%s as it was takes operations:\n%s", name, text(ops))
		}
	}
}

func mustPlan(tb testing.TB, p *plan.Planner, name lb.ServiceName, frontends []lb.Frontend) []plan.Op {
	tb.Helper()
	ops, err := p.Set(name, frontends)
	if err != nil {
		tb.Fatal(err)
	}
	return ops
}

func text(ops []plan.Op) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintln(&b, op)
	}
	return b.String()
}

// drawer sets fields to values that they may have; numbers are never 0.
type drawer struct {
	tb   testing.TB
	rand *rand.Rand
}

// value returns a value of a type of which not every one is possible; nil for others.
func (r *drawer) value(t reflect.Type) any {
	switch t {
	case reflect.TypeFor[lb.AddrPort]():
		return addrPort(1, 1) // the caller's to say
	case reflect.TypeFor[lb.View]():
		v := lb.View{Backends: r.backends(), Why: 1 + lb.Why(r.rand.IntN(int(lb.WhyEverywhere))), FallsBack: true}
		for range v.Backends {
			v.Weights = append(v.Weights, 1+r.rand.Uint32N(9))
		}
		return v
	case reflect.TypeFor[[]lb.AddrPort]():
		return r.backends()
	case reflect.TypeFor[[]netip.Prefix]():
		return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(r.rand.IntN(256))}), 24)}
	case reflect.TypeFor[lb.FrontendKind]():
		return lb.FrontendKind(1 + r.rand.IntN(int(lb.ExternalIP)))
	case reflect.TypeFor[lb.Algorithm]():
		return 1 + lb.Algorithm(r.rand.IntN(int(lb.Latency)))
	case reflect.TypeFor[map[lb.AddrPort]string]():
		return map[lb.AddrPort]string{} // no node is known
	case reflect.TypeFor[lb.Switch]():
		return 1 + lb.Switch(r.rand.IntN(2))
	}
	return nil
}

// backends returns one to five backends of 200.
func (r *drawer) backends() (out []lb.AddrPort) {
	first := r.rand.IntN(190)
	for i := range 1 + r.rand.IntN(5) {
		out = append(out, addrPort(byte(first+2*i), 8080))
	}
	return out
}

func (r *drawer) draw(v reflect.Value) {
	if value := r.value(v.Type()); value != nil {
		v.Set(reflect.ValueOf(value))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint([]uint64{2, 3, 5, 7, 11, 13, 17, 19}[r.rand.IntN(8)]) // sizes of tables are primes
	case reflect.Int64: // durations
		v.SetInt(1 + r.rand.Int64N(1000))
	case reflect.String:
		v.SetString("name")
	case reflect.Array:
		for i := range v.Len() {
			r.draw(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			r.draw(v.Field(i))
		}
	default:
		r.tb.Fatalf("no value for %s: say here which it may have", v.Type())
	}
}

package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/pkg/lb"
)

func mustAddrPort(tb testing.TB, s string) lb.AddrPort {
	tb.Helper()
	host, proto, ok := strings.Cut(s, "/")
	ap, err := netip.ParseAddrPort(host)
	if err != nil || !ok {
		tb.Fatalf("address %q: %v", s, err)
	}
	p := map[string]lb.Protocol{"TCP": lb.TCP, "UDP": lb.UDP}[proto]
	return lb.AddrPort{Addr: ap.Addr(), Port: ap.Port(), Protocol: p}
}

func view(tb testing.TB, backends ...string) lb.View {
	var v lb.View
	for _, b := range backends {
		v.Backends = append(v.Backends, mustAddrPort(tb, b))
	}
	return v
}

// clusterIP is a frontend whose clients, here and elsewhere, reach the same.
func clusterIP(tb testing.TB, at string, backends ...string) lb.Frontend {
	v := view(tb, backends...)
	return lb.Frontend{AddrPort: mustAddrPort(tb, at), Views: [lb.NumViews]lb.View{lb.Internal: v, lb.External: v}, Members: v.Backends}
}

var web, api = lb.ServiceName{Namespace: "default", Name: "web"}, lb.ServiceName{Namespace: "default", Name: "api"}

// lab is a planner and the model that its operations are applied to, checked
// after each one.
type lab struct {
	*Planner
	model Model
	ops   []Op
	reuse *reuse // looks whether anything comes back too early; nil: nobody does
}

func (l *lab) apply(tb testing.TB, ops []Op) {
	tb.Helper()
	l.ops = ops
	for i, op := range ops {
		if err := l.reuse.check(l.model, op); err != nil {
			tb.Fatalf("%q (operation %d of %v): %v", op, i, ops, err)
		}
		l.model.Apply(op)
		if err := l.model.Content().Check(); err != nil {
			tb.Fatalf("after %q (operation %d of %v): %v", op, i, ops, err)
		}
		if got, room := len(l.model.Addresses), l.Needs().Addresses; got > int(room) {
			tb.Fatalf("after %q (operation %d of %v): %d addresses, but room for %d is asked for", op, i, ops, got, room)
		}
	}
}

func (l *lab) set(tb testing.TB, name lb.ServiceName, frontends ...lb.Frontend) []Op {
	tb.Helper()
	ops, err := l.Set(name, frontends)
	if err != nil {
		tb.Fatalf("set %s: %v", name, err)
	}
	l.apply(tb, ops)
	return ops
}

func text(ops []Op) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintln(&b, op)
	}
	return b.String()
}

func wantOps(tb testing.TB, got []Op, want string) {
	tb.Helper()
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), text(got)); diff != "" {
		tb.Errorf("operations (-want +got):\n%s", diff)
	}
}

func TestAServiceIsWrittenBottomUpAndRemovedTopDown(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	f := clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:8080/TCP", "10.0.0.2:8080/TCP")
	f.Algorithm = lb.RR
	l.set(t, web, f)
	wantOps(t, l.ops, `
put backend 1 10.0.0.1:8080/TCP
put backend 2 10.0.0.2:8080/TCP
put table 0+2 backends 1 2 cursor
put service 1 default/web/TCP
put frontend 10.96.0.1:80/TCP kind ClusterIP service 1 internal 0+2 external 0+2 members id1+2 algorithm rr
put address 10.96.0.1 service
`)
	l.set(t, web)
	wantOps(t, l.ops, `
delete address 10.96.0.1
delete frontend 10.96.0.1:80/TCP
`)
	l.apply(t, l.Sweep())
	wantOps(t, l.ops, `
grace
clear frontend 10.96.0.1:80/TCP
clear backend 1
clear backend 2
clear service 1
`)
	if l.Sweep() != nil {
		t.Error("a second sweep has something to do")
	}
}

func TestEqualBackendsShareOneTable(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	backends := []string{"10.0.0.1:8080/TCP", "10.0.0.2:8080/TCP"}
	nodePort := clusterIP(t, "0.0.0.0:30080/TCP", backends...)
	nodePort.Kind = lb.NodePort
	l.set(t, web, clusterIP(t, "10.96.0.1:80/TCP", backends...), nodePort)
	l.set(t, api, clusterIP(t, "10.96.0.2:80/TCP", backends...))
	if got := len(l.model.Content().Tables); got != 1 {
		t.Errorf("%d tables for equal backends, want 1:\n%s", got, l.model.Content())
	}
}

func TestOneEndpointChangeWritesOneTableAndItsFrontends(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.set(t, web, clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP", "10.0.0.2:80/TCP"))
	l.set(t, web, clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP", "10.0.0.3:80/TCP"))
	wantOps(t, l.ops, `
put backend 3 10.0.0.3:80/TCP
put table 0+2 backends 1 3
put frontend 10.96.0.1:80/TCP kind ClusterIP service 1 internal 0+2 external 0+2
`)
	l.apply(t, l.Sweep())
	l.set(t, web, clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP", "10.0.0.4:80/TCP"))
	wantOps(t, l.ops, `
put backend 2 10.0.0.4:80/TCP
put frontend 10.96.0.1:80/TCP kind ClusterIP service 1 internal id1+2 external id1+2
`)
}

func TestWhatIsWantedAgainBeforeASweepKeepsItsPlace(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	full := clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP", "10.0.0.2:80/TCP")
	full.Algorithm = lb.RR
	one := clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP")
	one.Algorithm = lb.RR
	l.set(t, web, full)
	l.set(t, web, one)
	l.set(t, web, full)
	wantOps(t, l.ops, "put frontend 10.96.0.1:80/TCP kind ClusterIP service 1 internal 0+2 external 0+2 members id1+2 algorithm rr\n")
	l.apply(t, l.Sweep())
}

func TestLocalPolicyWithoutLocalEndpointIsSaidInTheFrontend(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	f := clusterIP(t, "10.96.0.1:80/TCP")
	f.Views[lb.Internal].NoLocal = true
	l.set(t, web, f)
	if got := l.model.Frontends[f.AddrPort].String(); got != "kind ClusterIP service 1 internal no-local external none" {
		t.Errorf("frontend is %q", got)
	}
}

func TestAFrontendStaysWithTheBetterClaimAndIsInherited(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	older := clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP")
	older.Age.Created = 1
	l.set(t, web, older)
	l.set(t, api, clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.9:80/TCP"), clusterIP(t, "10.96.0.2:80/TCP", "10.0.0.9:80/TCP"))
	want := `Service default/api: ClusterIP "10.96.0.1:80/TCP": Service default/web has this frontend and is older; give one of the two another address or port`
	if c := l.Conflicts(); len(c) != 1 || c[0].Error() != want {
		t.Errorf("conflicts %v, want %s", c, want)
	}
	l.set(t, web)
	if len(l.Conflicts()) != 0 {
		t.Errorf("conflicts remain: %v", l.Conflicts())
	}
	key := mustAddrPort(t, "10.96.0.1:80/TCP")
	if s := l.model.Services[l.model.Frontends[key].Service]; s.ServiceName != api {
		t.Errorf("frontend is of %s, want %s\n%s", s, api, l.model.Content())
	}
	l.set(t, api)
	if len(l.model.Frontends) != 0 || len(l.model.Addresses) != 0 {
		t.Errorf("left behind:\n%s", l.model.Content())
	}
}

func TestALimitRefusesTheWholeServiceAndLeavesNoTrace(t *testing.T) {
	l := &lab{Planner: New(Sizes{Backends: 3, Frontends: 2})}
	l.set(t, web, clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP"))
	before := l.Needs()
	for name, f := range map[string][]lb.Frontend{
		"backends":  {clusterIP(t, "10.96.0.2:80/TCP", "10.0.0.2:80/TCP", "10.0.0.3:80/TCP", "10.0.0.4:80/TCP")},
		"frontends": {clusterIP(t, "10.96.0.2:80/TCP"), clusterIP(t, "10.96.0.3:80/TCP")},
	} {
		ops, err := l.Set(api, f)
		if err == nil || len(ops) > 0 || !strings.Contains(err.Error(), "Service default/api: gets no address: all Services together ask for ") ||
			!strings.Contains(err.Error(), "; raise --max-"+name) {
			t.Errorf("limit of %s: %v, operations %v", name, err, ops)
		}
		if diff := cmp.Diff(before, l.Needs()); diff != "" {
			t.Errorf("refused Service left a trace (-before +after):\n%s", diff)
		}
	}
	l.set(t, api, clusterIP(t, "10.96.0.2:80/TCP", "10.0.0.2:80/TCP"))
	l.set(t, api)
}

func TestNodeAddressesAndClusterIPsShareTheAddressesMap(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	a, lo := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("::1")
	l.set(t, web, clusterIP(t, "10.96.0.1:80/TCP"), clusterIP(t, "10.96.0.1:81/TCP"))
	l.apply(t, l.SetNodeAddresses(map[netip.Addr]AddressKind{a: NodeAddress, lo: LoopbackAddress}))
	wantOps(t, l.ops, "put address 10.96.0.1 node,service\nput address ::1 loopback\n")
	l.set(t, web, clusterIP(t, "10.96.0.1:80/TCP"))
	l.apply(t, l.SetNodeAddresses(map[netip.Addr]AddressKind{a: NodeAddress}))
	wantOps(t, l.ops, "delete address ::1\n")
	l.set(t, web)
	wantOps(t, l.ops, "put address 10.96.0.1 node\ndelete frontend 10.96.0.1:80/TCP\n")
}

func TestAdoptionOfContradictoryContentIsRefused(t *testing.T) {
	good := func() Content {
		l := &lab{Planner: New(Sizes{})}
		f := clusterIP(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP", "10.0.0.2:80/TCP")
		f.Algorithm = lb.RR // a table of slots, and a dense one of members
		l.set(t, web, f)
		return l.model.Content()
	}
	key := mustAddrPort(t, "10.96.0.1:80/TCP")
	for name, spoil := range map[string]func(*Content){
		"a table names a backend that is not there": func(c *Content) { delete(c.Backends, 2) },
		"two backends are equal":                    func(c *Content) { c.Backends[3] = c.Backends[2] },
		"two Services are equal":                    func(c *Content) { c.Services[3] = c.Services[1] },
		"two tables overlap":                        func(c *Content) { c.Tables[Table{1, 2}] = []uint32{2, 1} },
		"two tables are equal": func(c *Content) {
			c.Tables[Table{9, 2}], c.Tables[Table{11, 2}] = []uint32{1, 2}, []uint32{1, 2}
		},
		"a dense table names a backend that is not there": func(c *Content) {
			f := c.Frontends[key]
			f.Members.Size = 3
			c.Frontends[key], c.Tables[f.Members] = f, f.Members.IDs()
		},
		"a frontend names a table that is not there": func(c *Content) {
			f := c.Frontends[key]
			f.Views[lb.External].Table = Table{40, 4}
			c.Frontends[key] = f
		},
		"a frontend names a Service that is not there": func(c *Content) { delete(c.Services, 1) },
	} {
		c := good()
		if _, err := Adopt(c, Sizes{}); err != nil {
			t.Fatalf("good content is refused: %v", err)
		}
		spoil(&c)
		if _, err := Adopt(c, Sizes{}); err == nil {
			t.Errorf("adopted although %s", name)
		}
	}
}

// world makes random Services over few addresses, so that they collide, share
// tables, run empty and come back.
type world struct {
	*rand.Rand
	state map[lb.ServiceName][]lb.Frontend
	node  map[netip.Addr]AddressKind
}

// addr is one of the few addresses that Services ask for.
func (w *world) addr() netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 0, byte(w.IntN(10))}) }

// move makes other addresses the node's. NodePorts do not answer on all of them.
func (w *world) move() map[netip.Addr]AddressKind {
	w.node = map[netip.Addr]AddressKind{}
	for range w.IntN(5) {
		w.node[w.addr()] = []AddressKind{0, NodeAddress, LoopbackAddress}[w.IntN(3)]
	}
	return w.node
}

func (w *world) view() lb.View {
	var v lb.View
	for i := range 6 {
		if w.IntN(3) == 0 {
			v.Backends = append(v.Backends, lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Port: 80, Protocol: lb.TCP})
		}
	}
	v.NoLocal = len(v.Backends) == 0 && w.IntN(2) == 0
	if w.IntN(2) == 0 {
		for range v.Backends {
			v.Weights = append(v.Weights, uint32(1+w.IntN(4)))
		}
	}
	return v
}

func (w *world) change() (lb.ServiceName, []lb.Frontend) {
	name := lb.ServiceName{Namespace: "ns", Name: fmt.Sprint("s", w.IntN(8))}
	var frontends []lb.Frontend
	var ranges []netip.Prefix
	for i := range w.IntN(3) {
		ranges = append(ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(w.IntN(3)), 0}), 24-i))
	}
	for range w.IntN(4) {
		algorithm, size := lb.Algorithm(w.IntN(14)), []uint32{7, 13}[w.IntN(2)]
		f := lb.Frontend{Policy: lb.Policy{Algorithm: algorithm, TableSize: size}, Kind: lb.FrontendKind(w.IntN(4)), Views: [lb.NumViews]lb.View{lb.Internal: w.view(), lb.External: w.view()}, Members: w.view().Backends}
		f.AffinityTimeout = uint32(w.IntN(2))
		f.AddrPort = lb.AddrPort{Addr: w.addr(), Port: uint16(80 + w.IntN(4)), Protocol: lb.TCP}
		if f.Kind == lb.NodePort {
			f.Addr = netip.IPv4Unspecified()
		}
		if slices.ContainsFunc(frontends, func(o lb.Frontend) bool { return o.AddrPort == f.AddrPort }) {
			continue
		}
		if f.Kind == lb.LoadBalancerIP {
			f.SourceRanges = ranges
		}
		f.Carried = w.IntN(4) == 0
		if w.IntN(3) == 0 {
			f.Views[lb.Internal].FallsBack, f.Views[lb.FallbackZone], f.Views[lb.FallbackAll] = true, w.view(), w.view()
			f.Spill, f.PassiveHealth, f.SlowStart, f.CloseUDP = w.Uint32(), lb.Switch(w.IntN(3)), w.Uint32(), w.IntN(2) == 0
		}
		frontends = append(frontends, f)
	}
	age := lb.Age{Created: int64(w.IntN(3)), UID: fmt.Sprint(w.IntN(2))}
	for i := range frontends {
		frontends[i].Age = age
	}
	w.state[name] = frontends
	return name, frontends
}

// resolved is what clients see: frontends to backends, IDs and places aside.
func resolved(c Content) map[string]string {
	out := map[string]string{}
	for key, f := range c.Frontends {
		s := c.Services[f.Service].String() + " " + f.Kind.String()
		s += fmt.Sprint(" affinity=", f.AffinityTimeout)
		for _, r := range slices.SortedFunc(maps.Keys(c.SourceRanges), SourceRange.compare) {
			if f.Filtered && r.Service == f.Service {
				s += " from " + r.Prefix.String()
			}
		}
		s += fmt.Sprint(" passive=", f.PassiveHealth, " slow-start=", f.SlowStart, " udp-close=", f.CloseUDP, " spill=", f.Spill, " falls-back=", f.Views[lb.Internal].FallsBack)
		for i, table := range f.Tables() {
			if i < len(f.Views) {
				s += fmt.Sprint(" no-local=", f.Views[i].NoLocal)
			}
			s += " table"
			for _, id := range c.Tables[table] {
				s += " " + c.Backends[id].String()
			}
		}
		out[key.String()] = s
	}
	return out
}

func TestEveryPrefixIsSafeAndAdoptionWritesNothing(t *testing.T) {
	for _, from := range []int{1, 2, deriveFrom} {
		t.Run(fmt.Sprint("derived from ", from), func(t *testing.T) { everyPrefixIsSafe(t, from) })
	}
}

// fewOfAll are limits that leave room for some of the Services of a world.
var fewOfAll = Sizes{Frontends: 12, Slots: 60, Backends: 30, Services: 6}

func everyPrefixIsSafe(t *testing.T, deriveFrom int) {
	for seed := range uint64(150) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, uint64(deriveFrom))), state: map[lb.ServiceName][]lb.Frontend{}}
		l := &lab{Planner: New(fewOfAll)}
		l.pool.deriveFrom = deriveFrom
		for step := range 200 {
			name, _ := w.change()
			if w.IntN(5) == 0 {
				l.apply(t, l.SetNodeAddresses(w.move()))
			}
			l.SetLinger(time.Duration(seed % 2))
			l.settle(t, w, name)
			l.pass(t, w, time.Duration(w.IntN(2)))
			l.recount(t)
			l.owners(t, w)
			l.kinds(t, w.node)
			if w.IntN(5) == 0 {
				l.apply(t, l.Sweep())
			}
			if step%20 == 0 {
				l.passAll(t, w)
				l.adoptAgain(t, w)
			}
		}
		for name := range w.state {
			delete(w.state, name)
			l.settle(t, w, name)
		}
		l.passAll(t, w)
		l.apply(t, l.SetNodeAddresses(nil))
		l.apply(t, l.Sweep())
		if got := l.model.Content().String(); got != "" {
			t.Errorf("seed %d: left behind:\n%s", seed, got)
		}
		if diff := cmp.Diff(Sizes{Backends: 1, Services: 1}, l.Needs()); diff != "" {
			t.Errorf("seed %d: sizes of nothing (-want +got):\n%s", seed, diff)
		}
		if gaps := l.pool.regions.unused; len(gaps) > 0 {
			t.Errorf("seed %d: slots of nothing have gaps: %v", seed, gaps)
		}
	}
}

// recount fails the test unless every backend is used by as many tables as it
// says, dense tables have as many slots, and nothing of a change is left over.
func (l *lab) recount(tb testing.TB) {
	tb.Helper()
	uses, dense := map[uint32]int{}, uint64(0)
	for _, t := range l.pool.tables {
		if t.large != nil && (t.large.delta != nil || t.large.successor != nil) {
			tb.Fatalf("table %s still comes after another one, or before one", t.table())
		}
		for _, id := range t.ids {
			uses[id] += min(t.uses, 1)
		}
		if t.table().Dense() {
			dense += uint64(t.size)
		}
	}
	if l.pool.dense != dense {
		tb.Fatalf("dense tables have %d slots, and are said to have %d", dense, l.pool.dense)
	}
	for r := range l.pool.backends.all() {
		id := l.pool.backends.numberOf(r.at)
		if _, retired := l.pool.retiredBackends[id]; int(r.uses) != uses[id] || retired != (r.uses == 0) {
			tb.Fatalf("backend %s: used by %d tables, but says %d; retired: %t", r.at.addrPort(), uses[id], r.uses, retired)
		}
	}
}

// adoptAgain replaces the planner by one that adopts the model, as a restart
// does, and expects that setting everything again writes nothing.
func (l *lab) adoptAgain(tb testing.TB, w *world) {
	tb.Helper()
	l.apply(tb, l.Sweep())
	before := resolved(l.model.Content())
	p, err := Adopt(l.model.Content(), fewOfAll)
	if err != nil {
		tb.Fatalf("adopt: %v", err)
	}
	if diff := cmp.Diff(l.Needs(), p.Needs(), cmpopts.IgnoreFields(Sizes{}, "Slots")); diff != "" {
		tb.Errorf("needs after adoption (-before +after):\n%s", diff)
	}
	if ops := p.SetNodeAddresses(w.node); len(ops) > 0 {
		tb.Fatalf("node addresses as they were, operations:\n%s", text(ops))
	}
	for name, frontends := range w.state {
		p.Ask(name, frontends)
	}
	owners := p.Services()
	for _, name := range slices.AppendSeq(owners, maps.Keys(w.state)) { // the latter may wait for others' frontends
		ops, err := p.Set(name, w.state[name])
		if err != nil != p.refused(name) || len(ops) > 0 {
			tb.Fatalf("set %s as it was: %v, operations:\n%s", name, err, text(ops))
		}
		if p.refused(name) != l.refused(name) {
			tb.Fatalf("%s is refused: %t before, %t after adoption", name, l.refused(name), p.refused(name))
		}
	}
	if p.Retired() > 0 {
		tb.Fatalf("%d retired after adoption of swept content", p.Retired())
	}
	p.pool.deriveFrom = l.pool.deriveFrom
	l.Planner = p
	if diff := cmp.Diff(before, resolved(l.model.Content())); diff != "" {
		tb.Fatalf("adoption changed something:\n%s", diff)
	}
}

func TestABackendIsLostWhenNoFrontendOfItsServiceKnowsIt(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	at, a, b := "10.96.0.1:80/TCP", "10.0.0.1:80/TCP", "10.0.0.2:80/TCP"
	l.set(t, web, clusterIP(t, at, a, b))
	draining := clusterIP(t, at, a)
	draining.Members = view(t, a, b).Backends
	l.set(t, web, draining)
	if lost := l.TakeLosses(); len(lost) > 0 {
		t.Errorf("lost while draining: %v", lost)
	}
	wantOps(t, l.ops, `
put frontend 10.96.0.1:80/TCP kind ClusterIP service 1 internal id1+1 external id1+1 members id1+2
`)
	l.set(t, web, clusterIP(t, at, a))
	want := []Loss{{mustAddrPort(t, at), mustAddrPort(t, b)}}
	if diff := cmp.Diff(want, l.TakeLosses(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	l.set(t, web)
	if lost := l.TakeLosses(); len(lost) != 1 || lost[0].Backend != mustAddrPort(t, a) {
		t.Errorf("losses of a deleted Service: %v", lost)
	}
}

// UDP sockets wait for the first backend, so that the datapath has to be told of it.
func TestAUDPFrontendThatGetsItsFirstBackendIsTold(t *testing.T) {
	const udp, tcp = "10.96.0.1:80/UDP", "10.96.0.1:80/TCP"
	opens := []Loss{{mustAddrPort(t, udp), mustAddrPort(t, udp)}}
	a, b := "10.0.0.1:80/UDP", "10.0.0.2:80/UDP"
	draining := clusterIP(t, udp)
	draining.Members = view(t, a).Backends
	l := &lab{Planner: New(Sizes{})}
	for _, step := range []struct {
		when string
		now  []lb.Frontend
		want []Loss
	}{
		{"no backend", []lb.Frontend{clusterIP(t, udp)}, nil},
		{"the first", []lb.Frontend{clusterIP(t, udp, a)}, opens},
		{"another", []lb.Frontend{clusterIP(t, udp, a, b)}, nil},
		{"a draining one", []lb.Frontend{draining}, []Loss{{mustAddrPort(t, udp), mustAddrPort(t, b)}}},
		{"that is back", []lb.Frontend{clusterIP(t, udp, a)}, opens},
		{"TCP", []lb.Frontend{clusterIP(t, udp, a), clusterIP(t, tcp, "10.0.0.1:80/TCP")}, nil},
		{"a Service that is gone", nil, []Loss{{mustAddrPort(t, tcp), mustAddrPort(t, "10.0.0.1:80/TCP")}, {mustAddrPort(t, udp), mustAddrPort(t, a)}}},
		{"and there again", []lb.Frontend{clusterIP(t, udp, a)}, opens},
	} {
		l.set(t, web, step.now...)
		if diff := cmp.Diff(step.want, l.TakeLosses(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", step.when, diff)
		}
	}
}

func TestSourceRangesAreThereBeforeAndGoAfterTheirFrontends(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	at := func(addr string, ranges ...string) lb.Frontend {
		f := clusterIP(t, addr+":80/TCP")
		f.Kind = lb.LoadBalancerIP
		for _, r := range ranges {
			f.SourceRanges = append(f.SourceRanges, netip.MustParsePrefix(r))
		}
		return f
	}
	l.set(t, web, at("203.0.113.1", "10.0.0.0/8", "192.0.2.7/32"), at("203.0.113.2", "10.0.0.0/8"))
	wantOps(t, l.ops, `
put service 1 default/web/TCP
put source range service 1 10.0.0.0/8
put source range service 1 192.0.2.7/32
put frontend 203.0.113.1:80/TCP kind LoadBalancer service 1 internal none external none filtered
put address 203.0.113.1 frontend
put frontend 203.0.113.2:80/TCP kind LoadBalancer service 1 internal none external none filtered
put address 203.0.113.2 frontend
`)
	l.set(t, web, at("203.0.113.1", "10.0.0.0/8"))
	wantOps(t, l.ops, `
delete address 203.0.113.2
delete frontend 203.0.113.2:80/TCP
delete source range service 1 192.0.2.7/32
`)
	l.set(t, web, at("203.0.113.1"))
	wantOps(t, l.ops, `
put frontend 203.0.113.1:80/TCP kind LoadBalancer service 1 internal none external none
delete source range service 1 10.0.0.0/8
`)
}

func TestAStrayRangeThatIsWantedAgainStays(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	f := clusterIP(t, "203.0.113.1:80/TCP")
	f.Kind, f.SourceRanges = lb.LoadBalancerIP, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	l.set(t, web, f)
	content := l.model.Content()
	for key, one := range content.Frontends { // the agent died before it was written
		one.Filtered = false
		content.Frontends[key] = one
	}
	p, err := Adopt(content, Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	l.Planner = p
	l.set(t, web, f)
	l.apply(t, l.Sweep())
	if len(l.model.SourceRanges) != 1 {
		t.Errorf("the ranges are %v, want the one that the Service has", l.model.SourceRanges)
	}
}

func TestServiceCIDRsAreWrittenOnceAndInOrder(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	a, b := netip.MustParsePrefix("10.96.0.7/16"), netip.MustParsePrefix("fd00:96::/112")
	ops, err := l.SetServiceCIDRs([]netip.Prefix{b, a, a})
	if err != nil {
		t.Fatal(err)
	}
	wantOps(t, ops, "put service cidrs 10.96.0.0/16 fd00:96::/112\n")
	l.apply(t, ops)
	p, err := Adopt(l.model.Content(), Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	if ops, err := p.SetServiceCIDRs([]netip.Prefix{a, b}); err != nil || len(ops) > 0 {
		t.Errorf("the same prefixes again: %v, %v", ops, err)
	}
	var many []netip.Prefix
	for i := range MaxServiceCIDRs + 1 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16))
	}
	if ops, err := p.SetServiceCIDRs(many); err == nil || len(ops) > 0 {
		t.Errorf("too many prefixes: %v, %v", ops, err)
	}
}

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	run := func() string {
		w := &world{Rand: rand.New(rand.NewPCG(7, 7)), state: map[lb.ServiceName][]lb.Frontend{}}
		l := &lab{Planner: New(Sizes{})}
		var all []Op
		for range 100 {
			name, frontends := w.change()
			l.set(t, name, frontends...)
			all = append(all, l.ops...)
			l.apply(t, l.Sweep())
			all = append(all, l.ops...)
		}
		return text(all) + l.model.Content().String()
	}
	if diff := cmp.Diff(run(), run()); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
}

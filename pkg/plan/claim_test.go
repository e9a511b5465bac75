package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// best returns the claim that every frontend goes to, by what all Services want that
// are not refused.
func (w *world) best(p *Planner) map[lb.AddrPort]lb.Claim {
	best := map[lb.AddrPort]lb.Claim{}
	want := func(nodePorts bool) {
		for name, frontends := range w.state {
			if p.refused(name) {
				continue
			}
			for _, f := range frontends {
				claim := claimOf(name, f)
				if has, ok := best[f.AddrPort]; (f.Kind == lb.NodePort) == nodePorts && w.mayHave(claim, f.AddrPort, best) && (!ok || claim.Compare(has) < 0) {
					best[f.AddrPort] = claim
				}
			}
		}
	}
	want(true)
	want(false)
	return best
}

// mayHave says whether a claim need not leave its address to the NodePort there of
// another Service.
func (w *world) mayHave(claim lb.Claim, at lb.AddrPort, best map[lb.AddrPort]lb.Claim) bool {
	is := w.node[at.Addr] != 0
	at.Addr = netip.IPv4Unspecified()
	n, ok := best[at]
	return !is || !ok || n.Service == claim.Service || claim.Compare(n) < 0
}

// owners fails the test unless every frontend is with the best claim to it.
func (l *lab) owners(tb testing.TB, w *world) {
	tb.Helper()
	want, got := map[string]string{}, map[string]string{}
	for key, claim := range w.best(l.Planner) {
		want[key.String()] = claim.Service.String() + " " + claim.Kind.String()
	}
	for key, f := range l.model.Frontends {
		if f.Former {
			l.former(tb, key, f)
			continue
		}
		if want[key.String()] == "" && l.refused(l.model.Services[f.Service].ServiceName) {
			continue // it has what it had
		}
		got[key.String()] = l.model.Services[f.Service].ServiceName.String() + " " + f.Kind.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("owners of frontends (-want +got):\n%s", diff)
	}
}

// conflicts returns the problems of a planner as text.
func conflicts(p *Planner) string {
	var b strings.Builder
	for _, c := range p.Conflicts() {
		fmt.Fprintln(&b, c.Service, c.Error())
	}
	for _, c := range p.Shortages() { // what a Service has had may be there still
		fmt.Fprintln(&b, c.Service, strings.Replace(c.Error(), "keeps the addresses and backends that it had", "gets no address", 1))
	}
	return b.String()
}

// settle sets a Service, and those again that this changes something for.
func (l *lab) settle(tb testing.TB, w *world, name lb.ServiceName) {
	tb.Helper()
	for again := []lb.ServiceName{name}; len(again) > 0; again = append(again[1:], l.TakeDisplaced()...) {
		name := again[0]
		ops, err := l.Set(name, w.state[name])
		if l.apply(tb, ops); err != nil && !l.refused(name) {
			l.apply(tb, l.EndLingering(true))
			l.apply(tb, l.Sweep())
			again = append(again, name)
		}
	}
}

// arrive sets Services in a random order, each after some earlier versions of it,
// or after it had been gone, with restarts between. The addresses of the node come at
// any time, after others.
func (w *world) arrive(tb testing.TB, final map[lb.ServiceName][]lb.Frontend, node map[netip.Addr]AddressKind, limits Sizes) *lab {
	tb.Helper()
	l := &lab{Planner: New(limits)}
	set := func(name lb.ServiceName, frontends []lb.Frontend) {
		w.state[name] = frontends
		l.settle(tb, w, name)
	}
	for range w.IntN(12) {
		name, frontends := w.change()
		if w.IntN(2) == 0 {
			l.apply(tb, l.SetNodeAddresses(w.move()))
		}
		set(name, frontends)
	}
	if w.IntN(2) == 0 {
		p, err := Adopt(l.model.Content(), limits)
		if err != nil {
			tb.Fatalf("adopt: %v", err)
		}
		l.Planner = p
	}
	var names []lb.ServiceName
	for i := range 8 {
		names = append(names, lb.ServiceName{Namespace: "ns", Name: fmt.Sprint("s", i)})
	}
	w.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	w.state = map[lb.ServiceName][]lb.Frontend{}
	moved := w.IntN(len(names) + 1)
	for i, name := range names {
		if i == moved {
			l.apply(tb, l.SetNodeAddresses(node))
		}
		set(name, final[name])
	}
	l.apply(tb, l.SetNodeAddresses(node))
	for _, name := range l.TakeDisplaced() {
		set(name, final[name])
	}
	return l
}

func TestEveryOrderOfArrivalGivesTheSameOwnersAndProblems(t *testing.T) {
	everyOrder(t, Sizes{})
}

func TestEveryOrderOfArrivalGivesTheSameRefusals(t *testing.T) {
	if n := everyOrder(t, fewOfAll); n < 60 {
		t.Errorf("%d Services were refused in all: the limits are too wide", n)
	}
}

// everyOrder fails the test unless owners and problems are the same in every order. It
// returns how many Services were refused.
func everyOrder(t *testing.T, limits Sizes) (refused int) {
	t.Helper()
	for seed := range uint64(60) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 5)), state: map[lb.ServiceName][]lb.Frontend{}}
		for range 20 {
			w.change()
		}
		final, node, problems := w.state, w.move(), ""
		for order := range 12 {
			w.state = map[lb.ServiceName][]lb.Frontend{}
			l := w.arrive(t, final, node, limits)
			refused += len(l.Shortages())
			l.owners(t, &world{state: final, node: node})
			got := conflicts(l.Planner)
			if order == 0 {
				problems = got
			}
			if diff := cmp.Diff(problems, got); diff != "" {
				t.Fatalf("seed %d: problems after another order of arrival (-first +now):\n%s", seed, diff)
			}
		}
	}
	return refused
}

func TestABetterClaimTakesAFrontendOverInOneWrite(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	at := "203.0.113.1:80/TCP"
	worse := clusterIP(t, at, "10.0.0.1:80/TCP")
	worse.Kind = lb.ExternalIP
	better := clusterIP(t, at, "10.0.0.2:80/TCP")
	better.Kind = lb.LoadBalancerIP
	l.set(t, api, worse)
	l.set(t, web, better)
	wantOps(t, l.ops, `
put backend 2 10.0.0.2:80/TCP
put service 2 default/web/TCP
put frontend 203.0.113.1:80/TCP kind LoadBalancer service 2 internal id2+1 external id2+1
`)
	if got := l.TakeDisplaced(); !slices.Equal(got, []lb.ServiceName{api}) {
		t.Errorf("displaced: %v, want %s", got, api)
	}
	if lost := l.TakeLosses(); len(lost) != 1 || lost[0].Backend != mustAddrPort(t, "10.0.0.1:80/TCP") {
		t.Errorf("losses: %v, want the backend of the Service that lost the address", lost)
	}
	l.set(t, api, worse)
	want := `default/api Service default/api: ExternalIP "203.0.113.1:80/TCP": Service default/web has this frontend as its LoadBalancer; give one of the two another address or port` + "\n"
	if diff := cmp.Diff(want, conflicts(l.Planner)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestAFilteredFrontendChangesItsOwnerInOneStep(t *testing.T) {
	l := &lab{Planner: New(Sizes{Frontends: 3})} // two of them are taken
	at := "203.0.113.1:80/TCP"
	open := clusterIP(t, at, "10.0.0.1:80/TCP")
	open.Kind = lb.ExternalIP
	filtered := clusterIP(t, at, "10.0.0.2:80/TCP")
	filtered.Kind, filtered.SourceRanges = lb.LoadBalancerIP, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	l.set(t, api, open, clusterIP(t, "10.96.0.2:80/TCP"))
	wantAnew(t, at, l.set(t, web, filtered))
	l.set(t, api, open, clusterIP(t, "10.96.0.2:80/TCP"))
	l.apply(t, l.Sweep())
	wantAnew(t, at, l.set(t, web))
	l.apply(t, l.Sweep())
	f := l.model.Frontends[mustAddrPort(t, at)]
	if l.model.Services[f.Service].ServiceName != api || len(l.model.SourceRanges) != 0 {
		t.Errorf("inherited: %s\n%s", f, l.model.Content())
	}
}

// wantAnew wants a frontend to be put in a new place.
func wantAnew(t *testing.T, at string, ops []Op) {
	t.Helper()
	for _, op := range ops {
		if o, ok := op.(PutFrontend); ok && o.Key == mustAddrPort(t, at) && o.Anew {
			return
		}
	}
	t.Errorf("%s is not put anew: %s", at, ops)
}

func TestANodePortIsToldOfAClusterIPThatIsAnAddressOfTheNode(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.apply(t, l.SetNodeAddresses(map[netip.Addr]AddressKind{netip.MustParseAddr("10.96.0.1"): NodeAddress}))
	nodePort := clusterIP(t, "0.0.0.0:30080/TCP")
	nodePort.Kind = lb.NodePort
	l.set(t, web, nodePort)
	l.set(t, api, clusterIP(t, "10.96.0.1:30080/TCP"), clusterIP(t, "10.96.0.1:80/TCP"))
	want := `default/web Service default/web: NodePort "10.96.0.1:30080/TCP": Service default/api has this frontend as its ClusterIP; give one of the two another address or port` + "\n"
	if diff := cmp.Diff(want, conflicts(l.Planner)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// former checks that a former frontend has the members of its Service port, if that is there, and nothing else.
// Frontends of a Service port differ in theirs only in tests.
func (l *lab) former(tb testing.TB, key lb.AddrPort, f Frontend) {
	tb.Helper()
	found := !l.formers[key].until.IsZero()
	for at, o := range l.model.Frontends {
		found = found || !o.Former && o.Service == f.Service && at.Addr.Is4() == key.Addr.Is4() && o.Members == f.Members
	}
	if !found && !l.refused(l.model.Services[f.Service].ServiceName) {
		tb.Fatalf("former frontend %s has members %s, and no frontend of its Service port has them", key, f.Members)
	}
	if f.Members.Size == 0 || f.Carried || f.Views[lb.Internal].Table.Size+f.Views[lb.External].Table.Size > 0 {
		tb.Fatalf("former frontend %s is %s", key, f)
	}
}

// formers returns the former frontends in force with the addresses of their members.
func (l *lab) formersText() (all []string) {
	c := l.model.Content()
	for key, f := range c.Frontends {
		if !f.Former {
			continue
		}
		line := key.String() + ":"
		for _, id := range c.Tables[f.Members] {
			line += " " + c.Backends[id].Addr.String()
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

// kept is a frontend at an address with backends that are members, too.
func kept(tb testing.TB, at string, backends ...string) lb.Frontend {
	tb.Helper()
	f := clusterIP(tb, at, backends...)
	f.Members = f.Views[lb.Internal].Backends
	return f
}

func TestFrontendsThatAServiceGivesUpKeepItsBackends(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	const old, now, a, b, c = "10.96.0.1:80/TCP", "10.96.0.2:81/TCP", "10.0.0.1:80/TCP", "10.0.0.2:80/TCP", "10.0.0.3:80/TCP"
	l.set(t, web, kept(t, old, a, b))
	l.set(t, web, kept(t, now, a, b))
	l.wantLost(t, "another address", []string{old + ": 10.0.0.1 10.0.0.2"})
	l.set(t, web, kept(t, now, b, c))
	l.wantLost(t, "a backend leaves", []string{old + ": 10.0.0.2 10.0.0.3"}, old+" lost 10.0.0.1", now+" lost 10.0.0.1")
	l.set(t, web, kept(t, old, b, c))
	l.wantLost(t, "the first address again", []string{now + ": 10.0.0.2 10.0.0.3"})
	l.set(t, api, kept(t, now, a))
	l.wantLost(t, "another Service takes the former address", nil, now+" lost 10.0.0.2", now+" lost 10.0.0.3")
	l.set(t, api, kept(t, "10.96.0.9:80/TCP", a))
	l.wantLost(t, "it gives that up", []string{now + ": 10.0.0.1"})
	l.set(t, api, kept(t, "10.96.0.9:80/TCP"))
	l.wantLost(t, "its last backend leaves", nil, now+" lost 10.0.0.1", "10.96.0.9:80/TCP lost 10.0.0.1")
	other := kept(t, "10.96.0.3:90/TCP", b, c)
	other.Port = "other"
	l.set(t, web, other)
	l.wantLost(t, "another Service port", nil, old+" lost 10.0.0.2", old+" lost 10.0.0.3")
	for i := range byte(40) {
		f := kept(t, fmt.Sprintf("10.96.1.%d:90/TCP", i), b, c)
		f.Port = "other"
		l.set(t, web, f)
	}
	if got := l.formersText(); len(got) != formersMost || got[0] != "10.96.1.23:90/TCP: 10.0.0.2 10.0.0.3" {
		t.Errorf("%d former frontends, the first is %s, want the %d newest", len(got), got[0], formersMost)
	}
	l.set(t, web)
	l.set(t, api)
	l.apply(t, l.Sweep())
	if got := l.model.Content().String(); got != "" {
		t.Errorf("left behind:\n%s", got)
	}
}

// Flows by a NodePort and by a former frontend at the same address of the node could not be told apart.
func TestNoFrontendIsFormerWhereANodePortAnswers(t *testing.T) {
	const at, now, b = "192.0.2.1:30080/TCP", "10.96.0.2:80/TCP", "10.0.0.1:80/TCP"
	nodePort := kept(t, "0.0.0.0:30080/TCP", "10.0.0.2:80/TCP")
	nodePort.Kind = lb.NodePort
	balancer := kept(t, at, b)
	balancer.Kind = lb.ExternalIP // of which a NodePort has the better claim
	begin := func() *lab {
		l := &lab{Planner: New(Sizes{})}
		l.apply(t, l.SetNodeAddresses(map[netip.Addr]AddressKind{netip.MustParseAddr("192.0.2.1"): NodeAddress}))
		l.set(t, web, balancer)
		return l
	}
	l := begin()
	l.set(t, web, kept(t, now, b))
	if d := cmp.Diff([]string{at + ": 10.0.0.1"}, l.formersText()); d != "" {
		t.Errorf("given up (-want +got):\n%s", d)
	}
	l.set(t, api, nodePort)
	if got := l.formersText(); got != nil {
		t.Errorf("a NodePort comes: %v are former", got)
	}
	l = begin()
	l.set(t, web, balancer, kept(t, now, b))
	own := kept(t, "0.0.0.0:30080/TCP", b)
	own.Kind = lb.NodePort
	l.set(t, web, balancer, own, kept(t, now, b))
	l.set(t, web, own, kept(t, now, b))
	if got := l.formersText(); got != nil {
		t.Errorf("there is a NodePort: %v are former", got)
	}
}

func TestFormerFrontendsUseAPartOfTheLimit(t *testing.T) {
	const b = "10.0.0.1:80/TCP"
	l := &lab{Planner: New(Sizes{Frontends: 8})}
	for i := range byte(6) {
		l.set(t, web, kept(t, fmt.Sprintf("10.96.0.%d:80/TCP", i), b))
	}
	if got := l.formersText(); len(got) != 2 {
		t.Errorf("%d are former, want a quarter of 8: %v", len(got), got)
	}
	l.set(t, api, kept(t, "10.96.1.1:80/TCP", b))
	var many []lb.Frontend
	for i := range byte(9) {
		many = append(many, kept(t, fmt.Sprintf("10.96.2.%d:80/TCP", i), b))
	}
	ops, err := l.Set(web, many)
	if l.apply(t, ops); err == nil {
		t.Fatal("a Service gets more than the limit")
	}
	if got := l.formersText(); got != nil {
		t.Errorf("the Service is refused: %v are former", got)
	}
}

// The load balancer's address moves to the node, or an agent starts there.
func TestNoFrontendIsFormerWhereANodePortAnswersByNow(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	nodePort := kept(t, "0.0.0.0:30080/TCP", "10.0.0.9:80/TCP")
	nodePort.Kind = lb.NodePort
	l.set(t, api, nodePort)
	l.set(t, web, kept(t, "192.0.2.9:30080/TCP", "10.0.0.1:80/TCP"))
	l.set(t, web, kept(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP"))
	if got := l.formersText(); len(got) != 1 {
		t.Fatalf("%v are former, want one", got)
	}
	node := map[netip.Addr]AddressKind{netip.MustParseAddr("192.0.2.9"): NodeAddress}
	adopted := &lab{Planner: mustAdopt(t, l.model.Content()), model: l.model}
	adopted.model.Frontends = maps.Clone(l.model.Frontends)
	for _, l := range []*lab{l, adopted} {
		l.TakeLosses()
		l.apply(t, l.SetNodeAddresses(node))
		if got := l.formersText(); got != nil {
			t.Errorf("%v are former", got)
		}
		if got := l.TakeLosses(); len(got) != 1 {
			t.Errorf("lost are %v, want one", got)
		}
	}
}

// An agent with a lower limit must not refuse Services for what another had given up.
func TestFormerFrontendsOfAnAgentBeforeMakeRoom(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	for i := range byte(16) {
		l.set(t, web, kept(t, fmt.Sprintf("10.96.0.%d:80/TCP", i), "10.0.0.1:80/TCP"))
	}
	p, err := Adopt(l.model.Content(), Sizes{Frontends: 8})
	if err != nil {
		t.Fatal(err)
	}
	l.Planner = p
	l.apply(t, p.SetNodeAddresses(nil))
	if got := l.formersText(); len(got) != 2 {
		t.Errorf("%v are former, want a quarter of 8", got)
	}
}

func TestAFilteredFrontendStaysFiltered(t *testing.T) {
	const at, b = "10.96.0.1:80/TCP", "10.0.0.1:80/TCP"
	l := &lab{Planner: New(Sizes{})}
	f := kept(t, at, b)
	f.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	l.set(t, web, f)
	l.set(t, web, kept(t, "10.96.0.2:80/TCP", b))
	if f := l.model.Frontends[mustAddrPort(t, at)]; !f.Former || !f.Filtered {
		t.Errorf("given up, it is %s", f)
	}
	if n := len(l.model.SourceRanges); n != 0 {
		t.Errorf("%d source ranges are left", n)
	}
}

func TestAFormerFrontendMeansNoService(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.apply(t, l.SetNodeAddresses(map[netip.Addr]AddressKind{netip.MustParseAddr("192.0.2.1"): NodeAddress}))
	port := kept(t, "0.0.0.0:30080/TCP", "10.0.0.1:80/TCP")
	l.set(t, web, kept(t, "10.96.0.1:80/TCP", "10.0.0.1:80/TCP"), port)
	is := func() (all []bool) {
		for _, at := range []string{"10.96.0.1:80/TCP", "192.0.2.1:30080/TCP"} {
			all = append(all, l.model.Content().IsFrontend(mustAddrPort(t, at), false))
		}
		return all
	}
	if got := is(); !got[0] || !got[1] {
		t.Errorf("in force: %v", got)
	}
	l.set(t, web, kept(t, "10.96.0.2:80/TCP", "10.0.0.1:80/TCP"))
	if got := is(); got[0] || got[1] {
		t.Errorf("given up: %v", got)
	}
}

// An agent died while it gave the frontend up, or while it took it back.
func TestAFormerFrontendThatIsHalfWrittenLosesItsViews(t *testing.T) {
	const at, b = "10.96.0.1:80/TCP", "10.0.0.1:80/TCP"
	l := &lab{Planner: New(Sizes{})}
	l.set(t, web, kept(t, at, b))
	whole := l.model.Frontends[mustAddrPort(t, at)]
	l.set(t, web, kept(t, "10.96.0.2:80/TCP", b))
	former := l.model.Frontends[mustAddrPort(t, at)]
	half := former
	half.Views[lb.Internal] = whole.Views[lb.Internal]
	l.model.Frontends[mustAddrPort(t, at)] = half
	l.Planner = mustAdopt(t, l.model.Content())
	l.set(t, web, kept(t, "10.96.0.2:80/TCP", b))
	if got := l.model.Frontends[mustAddrPort(t, at)]; got != former {
		t.Errorf("it is %s, want %s", got, former)
	}
	if got := l.TakeLosses(); got != nil {
		t.Errorf("lost are %v", got)
	}
}

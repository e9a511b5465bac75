package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

func TestMapsAreToGrowWhenTheyAreThreeQuartersFull(t *testing.T) {
	for n, want := range map[uint64]uint64{0: 0, 3: 4, 12288: 16384, 49152: 65536, 1_000_000: 1_016_384} {
		if got := withSpare(n); got != want {
			t.Errorf("%d entries need %d, want %d", n, got, want)
		}
	}
}

// What retired counts for the room that there has to be now, and not for that which is needed
// later.
func TestWhatRetiresIsNoReasonToGrow(t *testing.T) {
	p := New(Sizes{})
	p.SetDefaults(lb.Policy{Algorithm: lb.RR}) // tables have slots
	for i := range 30 {
		mustSet(t, p, i, i*10)
	}
	before := p.NeedsAheadOnceSwept()
	want := Sizes{Frontends: 40, Slots: (30*2 + 30) * 4 / 3, Backends: 1 + 40, Services: 1 + 40, Addresses: 40}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Errorf("30 Services of one endpoint (-want +got):\n%s", diff)
	}
	for i := range 30 {
		mustSet(t, p, i, i*10+1)
	}
	if diff := cmp.Diff(before, p.NeedsAheadOnceSwept()); diff != "" {
		t.Errorf("with other endpoints, once swept (-want +got):\n%s", diff)
	}
	if ahead := p.NeedsAhead(); ahead.Backends <= before.Backends || !p.Needs().Fit(ahead) {
		t.Errorf("before the sweep they need %+v, and ahead %+v", p.Needs(), ahead)
	}
	p.Sweep()
	if diff := cmp.Diff(before, p.NeedsAheadOnceSwept()); diff != "" {
		t.Errorf("when it is swept (-want +got):\n%s", diff)
	}
}

// What Services ask for says how large maps have to be before they are planned.
func TestRoomForAFirstPictureIsWhatItTakesWhenItIsPlanned(t *testing.T) {
	for _, limits := range []Sizes{{}, {Frontends: 20, Slots: 30, Backends: 10, Services: 20}} {
		p := New(limits)
		p.SetDefaults(lb.Policy{Algorithm: lb.RR})
		var names []lb.ServiceName
		for i := range 30 {
			name, frontends := numberedService(i, i*10, 1)
			names = append(names, name)
			p.Ask(name, frontends)
		}
		before := p.NeedsAheadWith(names)
		for i, name := range names {
			_, frontends := numberedService(i, i*10, 1)
			_, _ = p.Set(name, frontends) // some are refused where there are limits
		}
		if needs, ahead := p.Needs(), p.NeedsAhead(); !needs.Fit(before) || limits == (Sizes{}) && ahead != before {
			t.Errorf("limits %+v: room for %+v is made, %+v is needed, and %+v ahead", limits, before, needs, ahead)
		}
	}
}

// Each change of one of three Services retires the run that it had.
func TestNoRoomIsSparedBeyondTheLimits(t *testing.T) {
	for _, c := range []struct{ limits, want Sizes }{
		{Sizes{}, Sizes{Slots: 6*2 + 3 + 8*2, Backends: 1 + 8}}, // of the members, which are dense, too; a third more than six, or eight runs of two
		{Sizes{Slots: 10, Backends: 4}, Sizes{Slots: 20, Backends: 1 + 8}},
		{Sizes{Slots: 1000, Backends: 1000}, Sizes{Slots: 6*2 + 3 + 8*2, Backends: 1 + 8}},
		{Sizes{Slots: 8, Backends: 4}, Sizes{Slots: 16, Backends: 1 + 8}},
		{Sizes{Slots: 8, Backends: 3}, Sizes{Slots: 16, Backends: 1 + 6}},
	} {
		p := New(Sizes{})
		p.SetDefaults(lb.Policy{Algorithm: lb.RR})
		for i := range 6 {
			mustSet(t, p, i%3, i)
		}
		p.limits = limitsOf(c.limits)
		if got := p.NeedsAhead(); got.Slots != c.want.Slots || got.Backends != c.want.Backends {
			t.Errorf("limits %+v: %d slots and %d backends, want %d and %d", c.limits, got.Slots, got.Backends, c.want.Slots, c.want.Backends)
		}
	}
}

// Eight runs of the longest table are to spare, for as long as there is such a table.
func TestNoRoomIsSparedForALargeServiceThatIsNoMore(t *testing.T) {
	p := New(Sizes{})
	p.SetDefaults(lb.Policy{Algorithm: lb.RR})
	mustSet(t, p, 0, 0)
	small := p.NeedsAhead().Slots
	mustSetMany(t, p, 1, 1, 100)
	mustSetMany(t, p, 2, 200, 100)
	if large := p.NeedsAhead().Slots; large != (2+1)+2*(101+100)+8*101 {
		t.Errorf("two Services of 100 endpoints need %d slots ahead, want eight runs more than these have", large)
	}
	mustSet(t, p, 1, 1)
	p.Sweep()
	if one := p.NeedsAhead().Slots; one != 2*(2+1)+101+100+8*101 {
		t.Errorf("when one of them is small they need %d slots ahead, want eight runs of the other more", one)
	}
	if _, err := p.Set(lb.ServiceName{Namespace: "default", Name: "2"}, nil); err != nil {
		t.Fatal(err)
	}
	if waits := p.NeedsAhead().Slots; waits < 8*101 {
		t.Errorf("before the sweep they need %d slots ahead, and may be changed back", waits)
	}
	p.Sweep()
	if got := p.NeedsAheadOnceSwept().Slots; got != small+2+1 {
		t.Errorf("when both are small they need %d slots ahead, want %d", got, small+2+1)
	}
}

// Dense tables take no slots, until one endpoint of them is another one.
func TestARolloutOfDenseTablesMakesNoMapGrow(t *testing.T) {
	const services, each, apart = 20, 100, 200
	p, kernel := New(Sizes{}), Model{}
	apply := func(ops []Op) {
		for _, op := range ops {
			kernel.Apply(op)
		}
	}
	for i := range services {
		apply(mustSetMany(t, p, i, i*apart, each))
	}
	room := p.NeedsAhead()
	if used := p.taken()[limitedSlots]; used != 0 {
		t.Fatalf("tables of neighbours take %d slots, want none", used)
	}
	for i := range services {
		apply(mustSetMany(t, p, i, i*apart+1, each)) // of which one is new, and has no ID next to the others
		apply(p.Sweep())
		if needs := p.Needs().Slots; needs > room.Slots {
			t.Fatalf("%d changes need %d slots, and there was room for %d", i+1, needs, room.Slots)
		}
	}
	if used := p.taken()[limitedSlots]; used == 0 {
		t.Error("no table takes slots: the test shows nothing")
	}
	if want, got := p.NeedsAhead().Slots, mustAdopt(t, kernel.Content()).NeedsAhead().Slots; got != want {
		t.Errorf("the next agent needs %d slots ahead, want %d", got, want)
	}
}

// mustSet gives a Service one endpoint.
func mustSet(t *testing.T, p *Planner, service, endpoint int) {
	t.Helper()
	mustSetMany(t, p, service, endpoint, 1)
}

// mustSetMany gives a Service endpoints from one on, and returns the operations.
func mustSetMany(t *testing.T, p *Planner, service, endpoint, n int) []Op {
	t.Helper()
	ops, err := p.Set(numberedService(service, endpoint, n))
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// numberedService is a Service by its number, with endpoints from one on.
func numberedService(service, endpoint, n int) (lb.ServiceName, []lb.Frontend) {
	var list []lb.AddrPort
	for i := range n {
		list = append(list, lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 1, byte((endpoint + i) >> 8), byte(endpoint + i)}), Port: 80, Protocol: lb.TCP})
	}
	f := lb.Frontend{AddrPort: lb.AddrPort{Addr: netip.AddrFrom4([4]byte{172, 16, 0, byte(service)}), Port: 80, Protocol: lb.TCP}, Kind: lb.ClusterIP, Members: list}
	for i := range f.Views {
		f.Views[i].Backends = list
	}
	return lb.ServiceName{Namespace: "default", Name: fmt.Sprint(service)}, []lb.Frontend{f}
}

// Backends come in rows of IDs, with holes between them.
func TestMapsAreNotFullOfHoles(t *testing.T) {
	p := New(Sizes{})
	for i := range 30 {
		mustSet(t, p, i, i*10)
	}
	for i := range 29 {
		if _, err := p.Set(lb.ServiceName{Namespace: "default", Name: fmt.Sprint(i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	room := p.NeedsAhead()
	room.Backends = p.Needs().Backends
	if !p.IsFullUntilSwept(room) {
		t.Errorf("30 backends of which 29 retired have no room to spare in %+v", room)
	}
	p.Sweep()
	mustSet(t, p, 29, 300) // one retires
	if p.IsFullUntilSwept(room) {
		t.Errorf("2 backends fill %+v, of which they need %+v", room, p.Needs())
	}
}

func TestAMapThatHasJustGrownIsNotNearlyFull(t *testing.T) {
	for _, n := range []uint32{8, 1000, 65_536, 131_072, 500_000, 4_000_000} {
		if spare, none := withSpare(uint64(n))-uint64(n), uint64(nearlyNone(n)); 2*none > spare {
			t.Errorf("%d entries have %d to spare when they have grown, and are nearly full with %d", n, spare, none)
		}
	}
}

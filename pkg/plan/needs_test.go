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
	want := Sizes{Frontends: 40, Slots: 30*2 + 20, Backends: 1 + 40, Services: 1 + 40, Addresses: 40}
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

// Each change of one of three Services retires the run that it had.
func TestNoRoomIsSparedBeyondTheLimits(t *testing.T) {
	for _, c := range []struct{ limits, want Sizes }{
		{Sizes{}, Sizes{Slots: 6*2 + 8*2, Backends: 1 + 8}}, // a third more than six, or eight runs of two
		{Sizes{Slots: 10, Backends: 4}, Sizes{Slots: 20, Backends: 1 + 8}},
		{Sizes{Slots: 1000, Backends: 1000}, Sizes{Slots: 6*2 + 8*2, Backends: 1 + 8}},
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

// mustSet gives a Service one endpoint.
func mustSet(t *testing.T, p *Planner, service, endpoint int) {
	t.Helper()
	list := []lb.AddrPort{{Addr: netip.AddrFrom4([4]byte{10, 1, byte(endpoint >> 8), byte(endpoint)}), Port: 80, Protocol: lb.TCP}}
	f := lb.Frontend{AddrPort: lb.AddrPort{Addr: netip.AddrFrom4([4]byte{172, 16, 0, byte(service)}), Port: 80, Protocol: lb.TCP}, Kind: lb.ClusterIP, Members: list}
	for i := range f.Views {
		f.Views[i].Backends = list
	}
	if _, err := p.Set(lb.ServiceName{Namespace: "default", Name: fmt.Sprint(service)}, []lb.Frontend{f}); err != nil {
		t.Fatal(err)
	}
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

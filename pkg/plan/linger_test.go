package plan

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

const lingerFor = 2 * time.Second

// lingerLab is a planner in which deleted Services linger.
type lingerLab struct {
	*lab
}

func newLingerLab(tb testing.TB, limits Sizes) *lingerLab {
	tb.Helper()
	l := &lingerLab{&lab{Planner: New(limits)}}
	l.SetLinger(lingerFor)
	l.Tick(time.Unix(1000, 0))
	return l
}

// due passes time and returns the Services that are to be Set again.
func (l *lingerLab) due(tb testing.TB, d time.Duration) []lb.ServiceName {
	tb.Helper()
	names := l.Tick(l.now.Add(d))
	if at, ok := l.NextDrained(); ok && !l.now.Before(at) {
		tb.Errorf("next at %v, which has passed", at)
	}
	return names
}

// pass passes time, sets the Services that are due, and ends what those that are refused keep.
func (l *lab) pass(tb testing.TB, w *world, d time.Duration) {
	tb.Helper()
	for _, name := range l.Tick(l.now.Add(d)) {
		l.settle(tb, w, name)
	}
	l.apply(tb, l.EndLingering(false))
}

// passAll passes time until nothing lingers: a Service that is set when it is due may be held once more.
func (l *lab) passAll(tb testing.TB, w *world) {
	tb.Helper()
	for range 3 {
		l.pass(tb, w, time.Hour)
	}
	if l.Lingers() {
		tb.Fatalf("lingers: %v", l.lingering)
	}
}

// wantLost checks the former frontends, and what was lost since this was last asked.
func (l *lab) wantLost(tb testing.TB, when string, formers []string, losses ...string) {
	tb.Helper()
	if d := cmp.Diff(formers, l.formersText()); d != "" {
		tb.Errorf("%s: former frontends (-want +got):\n%s", when, d)
	}
	var got []string
	for _, loss := range l.TakeLosses() {
		got = append(got, fmt.Sprint(loss.Frontend, " lost ", loss.Backend.Addr))
	}
	slices.Sort(got)
	if d := cmp.Diff(losses, got); d != "" {
		tb.Errorf("%s: losses (-want +got):\n%s", when, d)
	}
}

// wantNothing checks that a planner whose Services have gone has left nothing.
func (l *lingerLab) wantNothing(tb testing.TB) {
	tb.Helper()
	l.apply(tb, l.Sweep())
	if got := l.model.Content().String(); got != "" {
		tb.Errorf("left behind:\n%s", got)
	}
	if len(l.lingering)+len(l.formers)+len(l.formerOf) > 0 {
		tb.Errorf("the planner still has %v, %v, %v", l.lingering, l.formers, l.formerOf)
	}
}

// aged is a frontend of a Service object of its own.
func aged(f lb.Frontend, uid string) lb.Frontend {
	f.Age = lb.Age{Created: 1, UID: uid}
	return f
}

func TestADeletedServiceKeepsItsBackendsForAWhile(t *testing.T) {
	l := newLingerLab(t, Sizes{})
	l.set(t, web, kept(t, vip, b1, b2))
	l.set(t, web)
	want := []string{vip + ": 10.0.0.1 10.0.0.2"}
	l.wantLost(t, "deleted", want)
	if got := l.due(t, lingerFor-1); got != nil {
		t.Errorf("due too early: %v", got)
	}
	l.set(t, web)
	l.wantLost(t, "set again", want)
	if got := l.due(t, 1); !slices.Equal(got, []lb.ServiceName{web}) {
		t.Errorf("due: %v", got)
	}
	l.set(t, web)
	l.wantLost(t, "the time is over", nil, vip+" lost 10.0.0.1", vip+" lost 10.0.0.2")
	if _, ok := l.NextDrained(); ok || l.due(t, time.Hour) != nil {
		t.Error("still due")
	}
	l.wantNothing(t)
}

// In a cluster, the Service comes first, and its EndpointSlices after that.
func TestAServiceThatIsMadeAgainLosesNothing(t *testing.T) {
	l := newLingerLab(t, Sizes{})
	l.set(t, web, kept(t, vip, b1, b2))
	l.set(t, web)
	l.due(t, lingerFor-1)
	l.set(t, web, kept(t, vip))
	l.due(t, lingerFor-1)
	l.wantMembers(t, "made again", vip, "1 2", "")
	l.set(t, web, kept(t, vip, b2, b3))
	l.wantMembers(t, "its endpoints", vip, "1 2 3", "")
	if got := l.due(t, 1); !slices.Equal(got, []lb.ServiceName{web}) {
		t.Errorf("due: %v", got)
	}
	l.set(t, web, kept(t, vip, b2, b3))
	l.wantMembers(t, "an endpoint did not come again", vip, "2 3", "1")
	l.set(t, web, kept(t, vip, b3))
	l.wantMembers(t, "after that", vip, "3", "2")
}

// The agent may see both changes at once. The slices of the former object may go after that.
func TestAServiceThatIsReplacedLosesNothing(t *testing.T) {
	l := newLingerLab(t, Sizes{})
	l.set(t, web, aged(kept(t, vip, b1), "former"))
	l.set(t, web, aged(kept(t, vip, b1), "new"))
	l.set(t, web, aged(kept(t, vip), "new"))
	l.wantMembers(t, "the former slices went", vip, "1", "")
	l.set(t, web, aged(kept(t, vip, b1), "new"))
	l.wantMembers(t, "the slices came", vip, "1", "")
	l.due(t, lingerFor)
	l.set(t, web, aged(kept(t, vip), "new"))
	l.wantMembers(t, "later", vip, "", "1")
}

func TestAServicePortWithAnotherNameLosesNothing(t *testing.T) {
	named := func(name string, backends ...string) lb.Frontend {
		f := kept(t, vip, backends...)
		f.Port = name
		return f
	}
	l := newLingerLab(t, Sizes{})
	l.set(t, web, named("http", b1))
	l.set(t, web, named("web"))
	l.wantMembers(t, "the EndpointSlices have the former name", vip, "1", "")
	l.set(t, web, named("web", b1))
	l.wantMembers(t, "they have the new name", vip, "1", "")
	l.set(t, web, named("http"))
	l.due(t, lingerFor)
	l.set(t, web, named("http"))
	l.wantMembers(t, "they never get it", vip, "", "1")
}

func TestAServiceThatIsMadeAgainAtAnotherAddressLosesNothing(t *testing.T) {
	const now = "10.96.0.2:80/TCP"
	l := newLingerLab(t, Sizes{})
	l.set(t, web, kept(t, vip, b1))
	l.set(t, web)
	l.due(t, lingerFor-1)
	l.set(t, web, kept(t, now))
	l.due(t, lingerFor-1)
	l.set(t, web, kept(t, now))
	l.wantLost(t, "without endpoints", []string{vip + ": 10.0.0.1"})
	l.set(t, web, kept(t, now, b1))
	l.due(t, time.Hour)
	l.set(t, web, kept(t, now, b1))
	l.wantLost(t, "with endpoints", []string{vip + ": 10.0.0.1"})
	l.set(t, web)
	l.wantLost(t, "deleted again", []string{vip + ": 10.0.0.1", now + ": 10.0.0.1"})
}

// Its endpoints may come in several EndpointSlices.
func TestAServiceThatIsMadeAgainInPartsLosesNothing(t *testing.T) {
	const now = "10.96.0.2:80/TCP"
	l := newLingerLab(t, Sizes{})
	l.set(t, web, kept(t, vip, b1, b2))
	l.set(t, web)
	l.set(t, web, kept(t, now, b1))
	l.set(t, web, kept(t, now, b1, b2))
	l.wantLost(t, "in two parts", []string{vip + ": 10.0.0.1 10.0.0.2"})
	l.set(t, web)
	l.set(t, web, kept(t, now, b1))
	if got := l.due(t, lingerFor); !slices.Equal(got, []lb.ServiceName{web}) {
		t.Errorf("due: %v", got)
	}
	l.set(t, web, kept(t, now, b1))
	l.wantLost(t, "the second never comes", []string{vip + ": 10.0.0.1"}, vip+" lost 10.0.0.2", now+" lost 10.0.0.2")
}

// A former frontend keeps in mind since when a backend drains, also if it drains at another frontend of the Service.
func TestABackendDrainsNoLongerBecauseItsServiceIsMadeAgain(t *testing.T) {
	const other = "203.0.113.1:80/TCP"
	long := func(at string, backends ...string) lb.Frontend { return drains(kept(t, at, backends...), time.Minute) }
	for _, c := range []struct {
		name  string
		leave []lb.Frontend
	}{
		{"deleted", nil},
		{"an address is given up", []lb.Frontend{long(vip, b2)}},
		{"another address is given up", []lb.Frontend{long(other, b2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLingerLab(t, Sizes{})
			l.set(t, web, long(vip, b1, b2), long(other, b1, b2))
			l.set(t, web, long(vip, b2), long(other, b2))
			l.due(t, 30*time.Second)
			l.set(t, web, c.leave...)
			l.set(t, web, long(vip, b2), long(other, b2))
			l.due(t, 30*time.Second)
			l.set(t, web, long(vip, b2), long(other, b2))
			l.wantLost(t, "drained", nil, vip+" lost 10.0.0.1", other+" lost 10.0.0.1")
		})
	}
}

// The backend leaves while a frontend is a former one. Another planner goes on from the maps meanwhile.
func TestABackendDrainsNoLongerBecauseAnAddressIsTakenBack(t *testing.T) {
	const other = "203.0.113.1:80/TCP"
	long := func(at string, backends ...string) lb.Frontend { return drains(kept(t, at, backends...), time.Minute) }
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprint("it leaves before: ", first), func(t *testing.T) {
			l := newLingerLab(t, Sizes{})
			l.set(t, web, long(vip, b1, b2), long(other, b1, b2))
			if first {
				l.set(t, web, long(vip, b2), long(other, b2))
				l.set(t, web)
			} else {
				l.set(t, web, long(other, b1, b2))
				l.set(t, web, long(other, b2))
			}
			q, ops, err := l.Resume(l.model.Content(), nil, nil)
			if err != nil || len(ops) > 0 {
				t.Fatal(ops, err)
			}
			l = &lingerLab{&lab{Planner: q, model: l.model}}
			l.due(t, 30*time.Second)
			l.set(t, web, long(vip, b2), long(other, b2))
			l.due(t, 30*time.Second)
			l.set(t, web, long(vip, b2), long(other, b2))
			l.wantLost(t, "drained", nil, vip+" lost 10.0.0.1", other+" lost 10.0.0.1")
		})
	}
}

func TestAServiceIsHeldEachTimeThatItIsMadeAgain(t *testing.T) {
	l := newLingerLab(t, Sizes{})
	l.set(t, web, kept(t, vip, b1))
	l.set(t, web)
	l.due(t, lingerFor/2)
	l.set(t, web, kept(t, vip))
	l.due(t, lingerFor/2)
	l.set(t, web)
	l.due(t, lingerFor*3/4)
	l.set(t, web, kept(t, vip))
	l.wantMembers(t, "made again for the second time", vip, "1", "")
}

// A former frontend whose Service port went lingers. Then the Service port comes with some of the members.
func TestAServiceIsHeldNoLongerByAFormerFrontend(t *testing.T) {
	other := kept(t, "10.96.0.1:90/TCP", b3)
	other.Port = "other"
	l := newLingerLab(t, Sizes{})
	l.set(t, web, kept(t, vip, b1, b2), other)
	l.set(t, web)
	l.set(t, web, kept(t, vip, b1, b2), other)
	l.due(t, lingerFor/2)
	l.set(t, web, other)
	l.due(t, lingerFor/4)
	l.set(t, web, kept(t, "10.96.0.2:80/TCP", b1), other)
	if got := l.due(t, lingerFor/4); !slices.Equal(got, []lb.ServiceName{web}) {
		t.Errorf("due: %v", got)
	}
}

func TestAServiceThatCannotBeMadeAgainEndsInTime(t *testing.T) {
	const taken = "203.0.113.1:80/TCP"
	l := newLingerLab(t, Sizes{})
	l.set(t, api, aged(kept(t, taken, b2), "api"))
	l.set(t, web, aged(kept(t, vip, b1), "web"))
	l.set(t, web)
	for range 5 { // another Service has the address
		l.due(t, lingerFor/2)
		l.set(t, web, aged(kept(t, taken, b1), "web"))
	}
	l.wantLost(t, "5 s after it was deleted", nil, vip+" lost 10.0.0.1")

	l.set(t, web, aged(kept(t, vip, b1), "web"))
	l.set(t, web)
	l.apply(t, l.EndLingering(false))
	l.wantLost(t, "before its time", []string{vip + ": 10.0.0.1"})
	l.due(t, lingerFor)
	l.apply(t, l.EndLingering(false))
	l.wantLost(t, "nothing has Set it again", nil, vip+" lost 10.0.0.1")
}

// A Service gets an address that it waits for when another Service gives it up.
func TestFormerFrontendsFollowAnAddressThatIsPassedOn(t *testing.T) {
	const taken = "203.0.113.1:80/TCP"
	l := newLingerLab(t, Sizes{})
	l.set(t, api, aged(kept(t, taken, b2), "api"))
	l.set(t, web, aged(kept(t, vip, b1), "web"))
	l.set(t, web)
	l.set(t, web, aged(kept(t, taken, b1), "web"))
	l.set(t, api)
	if got := l.TakeDisplaced(); !slices.Equal(got, []lb.ServiceName{web}) {
		t.Errorf("to be Set again: %v", got)
	}
	l.TakeLosses()
	l.set(t, web, aged(kept(t, taken, b1), "web"))
	l.apply(t, l.EndLingering(true))
	l.wantLost(t, "its Service port has the backend", []string{vip + ": 10.0.0.1"})
}

func TestWhatADeletedServiceKeepsIsThereForOthers(t *testing.T) {
	l := newLingerLab(t, Sizes{})
	l.set(t, web, kept(t, vip, b1, b2))
	l.set(t, web)
	l.set(t, api, drains(kept(t, vip, b2), time.Minute))
	l.wantLost(t, "another Service takes the address", nil, vip+" lost 10.0.0.1")
	l.set(t, api)
	l.apply(t, l.EndLingering(true))
	l.wantLost(t, "others need the room", nil, vip+" lost 10.0.0.2")
	l.wantNothing(t)
}

func TestAServicePortThatGoesKeepsItsBackendsForAWhile(t *testing.T) {
	other := kept(t, "10.96.0.1:90/TCP", b2)
	other.Port = "other"
	l := newLingerLab(t, Sizes{})
	l.set(t, web, kept(t, vip, b1), other)
	l.set(t, web, other)
	l.wantLost(t, "removed", []string{vip + ": 10.0.0.1"})
	l.due(t, lingerFor)
	l.set(t, web, other)
	l.wantLost(t, "later", nil, vip+" lost 10.0.0.1")
}

// More than that many former frontends of a Service that is there would end.
func TestADeletedServiceKeepsAllItsFrontends(t *testing.T) {
	l := newLingerLab(t, Sizes{})
	var all []lb.Frontend
	for i := range formersMost + 4 {
		all = append(all, kept(t, fmt.Sprintf("10.96.1.%d:80/TCP", i), b1))
	}
	l.set(t, web, all...)
	l.set(t, web)
	if got := len(l.formersText()); got != len(all) {
		t.Errorf("%d former frontends, want %d", got, len(all))
	}
}

func TestAServiceThatIsRefusedKeepsNothing(t *testing.T) {
	l := newLingerLab(t, Sizes{Frontends: 8})
	l.set(t, web, kept(t, vip, b1))
	var many []lb.Frontend
	for i := range 9 {
		many = append(many, kept(t, fmt.Sprintf("10.96.1.%d:80/TCP", i), b1))
	}
	for _, when := range []string{"in force", "deleted"} {
		ops, err := l.Set(web, many)
		if err == nil {
			t.Errorf("%s: it is not refused", when)
		}
		l.apply(t, ops)
		if got := l.formersText(); got != nil {
			t.Errorf("%s: former frontends of a Service that is refused: %v", when, got)
		}
		l.set(t, web, kept(t, vip, b1))
		l.set(t, web)
	}
}

func TestAServiceWaitsForRoomUntilNothingLingers(t *testing.T) {
	l := newLingerLab(t, Sizes{Backends: 1})
	for i := range 3 {
		f := kept(t, fmt.Sprintf("10.96.0.%d:80/TCP", i), fmt.Sprintf("10.0.0.%d:80/TCP", i))
		name := lb.ServiceName{Namespace: "ns", Name: fmt.Sprint(i)}
		ops, err := l.Set(name, []lb.Frontend{f})
		l.apply(t, ops)
		if i == roomForLimit {
			if !errors.Is(err, ErrLater) {
				t.Errorf("the last Service: %v, want %v", err, ErrLater)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		l.set(t, name)
		l.apply(t, l.Sweep())
	}
}

func TestAPlannerThatGoesOnFromMapsKnowsWhatLingers(t *testing.T) {
	l := newLingerLab(t, Sizes{})
	l.set(t, web, kept(t, vip, b1))
	l.set(t, api, kept(t, "10.96.0.2:80/TCP", b2))
	l.set(t, web)
	l.set(t, api)
	l.set(t, api, kept(t, "10.96.0.2:80/TCP"))
	l.due(t, lingerFor/2)
	err := l.Again(l.model.Content(), []lb.ServiceName{web, api}, func(name lb.ServiceName) []lb.Frontend {
		if name == web {
			return nil
		}
		return []lb.Frontend{kept(t, "10.96.0.2:80/TCP")}
	}, func(name lb.ServiceName, ops []Op) {
		if len(ops) > 0 {
			t.Errorf("%s differs:\n%s", name, text(ops))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	resumed := func() *lingerLab {
		q, ops, err := l.Resume(l.model.Content(), nil, nil)
		if err != nil || len(ops) > 0 {
			t.Fatal(ops, err)
		}
		return &lingerLab{&lab{Planner: q, model: l.model}}
	}
	next := resumed()
	next.set(t, web)
	next.set(t, api, kept(t, "10.96.0.2:80/TCP"))
	next.wantMembers(t, "held", "10.96.0.2:80/TCP", "2", "")
	next.wantLost(t, "lingers", []string{vip + ": 10.0.0.1"})
	if got := next.due(t, lingerFor/2); !slices.Equal(got, []lb.ServiceName{api, web}) {
		t.Errorf("due: %v", got)
	}
	next.set(t, web)
	next.set(t, api)
	next.wantLost(t, "later", []string{"10.96.0.2:80/TCP: 10.0.0.2"}, vip+" lost 10.0.0.1")

	next.set(t, web, kept(t, vip, b1))
	next.set(t, web)
	l = next
	next = resumed()
	next.set(t, web, kept(t, vip))
	next.wantMembers(t, "made again after that", vip, "1", "")
}

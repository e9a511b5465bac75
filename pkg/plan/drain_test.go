package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// drains is a frontend that has backends drain.
func drains(f lb.Frontend, d time.Duration) lb.Frontend {
	f.DrainTime = d
	return f
}

// members returns the backends that a frontend has in the maps, the last octets
// of their addresses, and what was lost since this was last asked.
func (l *lab) members(tb testing.TB, at string) (members, lost string) {
	tb.Helper()
	octets := func(backends []lb.AddrPort) string {
		var out []string
		for _, b := range backends {
			out = append(out, fmt.Sprint(b.Addr.As4()[3]))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	c := l.model.Content()
	var have, losses []lb.AddrPort
	for _, id := range c.Tables[c.Frontends[mustAddrPort(tb, at)].Members] {
		have = append(have, c.Backends[id])
	}
	for _, loss := range l.TakeLosses() {
		losses = append(losses, loss.Backend)
	}
	return octets(have), octets(losses)
}

func (l *lab) wantMembers(tb testing.TB, when, at, members, lost string) {
	tb.Helper()
	k, lo := l.members(tb, at)
	if diff := cmp.Diff([]string{members, lost}, []string{k, lo}); diff != "" {
		tb.Errorf("%s: members and lost (-want +got):\n%s", when, diff)
	}
}

const vip, b1, b2, b3 = "10.96.0.1:80/TCP", "10.0.0.1:80/TCP", "10.0.0.2:80/TCP", "10.0.0.3:80/TCP"

func TestABackendIsLostWhenItIsDrained(t *testing.T) {
	start := time.Unix(1000, 0)
	l := &lab{Planner: New(Sizes{})}
	l.Tick(start)
	set := func(d time.Duration, backends ...string) {
		t.Helper()
		l.set(t, web, drains(clusterIP(t, vip, backends...), d))
	}
	due := func(after time.Duration) []lb.ServiceName { return l.Tick(start.Add(after)) }
	next := func(want time.Duration) {
		t.Helper()
		if at, ok := l.NextDrained(); ok != (want != 0) || ok && at.Sub(start) != want {
			t.Errorf("next at %v (%v), want %v", at.Sub(start), ok, want)
		}
	}
	set(time.Minute, b1, b2, b3)
	next(0)
	set(time.Minute, b2, b3)
	l.wantMembers(t, "the first has left", vip, "1 2 3", "")
	if got := l.model.Content().Tables[l.model.Content().Frontends[mustAddrPort(t, vip)].Views[lb.Internal].Table]; len(got) != 2 {
		t.Errorf("new connections go to %d backends, want 2", len(got))
	}
	next(time.Minute)

	due(20 * time.Second)
	set(time.Minute, b3)
	l.wantMembers(t, "the second has left", vip, "1 2 3", "")
	set(time.Minute, b3, b2)
	set(time.Minute, b3)
	l.wantMembers(t, "it came and went", vip, "1 2 3", "")
	next(time.Minute)

	if got := due(59 * time.Second); len(got) > 0 {
		t.Errorf("due after 59 seconds: %v", got)
	}
	if got := due(time.Minute); !slices.Equal(got, []lb.ServiceName{web}) {
		t.Errorf("due after a minute: %v", got)
	}
	if got := due(61 * time.Second); len(got) > 0 {
		t.Errorf("due twice: %v", got)
	}
	next(0)
	set(time.Minute, b3)
	l.wantMembers(t, "the first is drained", vip, "2 3", "1")
	next(80 * time.Second)

	set(10*time.Minute, b3)
	next(620 * time.Second)
	set(30*time.Second, b3) // less than it has had
	l.wantMembers(t, "the time is shorter now", vip, "3", "2")
	next(0)

	set(time.Minute, b3, b1)
	set(time.Minute, b3)
	set(0, b3)
	l.wantMembers(t, "none may drain", vip, "3", "1")

	set(time.Minute)
	l.wantMembers(t, "the last has left", vip, "3", "")
	l.set(t, web)
	l.wantMembers(t, "the Service is gone", vip, "", "3")
	next(0)
}

func TestAFrontendThatPassesOnDrainsNothing(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.set(t, web, drains(clusterIP(t, vip, b1, b2), time.Minute))
	l.set(t, api, clusterIP(t, vip, b3))
	l.set(t, web, drains(clusterIP(t, vip, b2), time.Minute))
	l.set(t, web)
	l.wantMembers(t, "the other has it", vip, "3", "1 2")
	if _, ok := l.NextDrained(); ok {
		t.Error("something drains")
	}
}

func TestWhatDrainsIsAdopted(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.set(t, web, drains(clusterIP(t, vip, b1, b2), time.Minute))
	l.set(t, web, drains(clusterIP(t, vip, b2), time.Minute))
	adopt := func() *lab {
		t.Helper()
		p, err := Adopt(l.model.Content(), Sizes{})
		if err != nil {
			t.Fatal(err)
		}
		return &lab{Planner: p, model: l.model}
	}
	next := adopt()
	next.Tick(time.Unix(5000, 0))
	next.set(t, web, drains(clusterIP(t, vip, b2), time.Minute))
	if len(next.ops) > 0 {
		t.Errorf("an agent that starts writes:\n%s", text(next.ops))
	}
	next.wantMembers(t, "adopted", vip, "1 2", "")
	if at, ok := next.NextDrained(); !ok || !at.Equal(time.Unix(5060, 0)) {
		t.Errorf("drained at %v (%v), want a minute after the start", at, ok)
	}
	next = adopt()
	next.set(t, web, clusterIP(t, vip, b2))
	next.wantMembers(t, "no drain time any more", vip, "2", "1")
}

func TestAChangeThatIsRefusedDrainsNothing(t *testing.T) {
	l := &lab{Planner: New(Sizes{Backends: 2})}
	l.set(t, web, drains(clusterIP(t, vip, b1, b2), time.Minute))
	if _, err := l.Set(web, []lb.Frontend{drains(clusterIP(t, vip, b2, b3, "10.0.0.9:80/TCP"), time.Minute)}); err == nil {
		t.Fatal("three backends fit into two")
	}
	if _, ok := l.NextDrained(); ok {
		t.Error("something drains")
	}
	l.wantMembers(t, "refused", vip, "1 2", "")
}

// Whatever happens, a frontend knows its backends and those that left it less
// than its drain time ago, and nothing is lost twice or never.
func TestDrainsFollowTheirModel(t *testing.T) {
	const drain = 10
	rng := rand.New(rand.NewPCG(1, 2))
	l := &lab{Planner: New(Sizes{})}
	backends := []string{b1, b2, b3, "10.0.0.4:80/TCP", "10.0.0.5:80/TCP"}
	left, had := map[string]int{}, map[string]bool{}
	for now := range 2000 {
		l.Tick(time.Unix(int64(now), 0))
		has := map[string]bool{}
		for _, b := range backends {
			if rng.IntN(4) > 0 {
				has[b] = true
			}
		}
		var list []string
		want, lost := map[string]bool{}, []string{}
		for _, b := range backends {
			if has[b] {
				list = append(list, b)
				delete(left, b)
			} else if at, draining := left[b]; had[b] {
				left[b] = now
			} else if draining && now >= at+drain {
				delete(left, b)
				lost = append(lost, fmt.Sprint(mustAddrPort(t, b).Addr.As4()[3]))
			}
			if _, draining := left[b]; has[b] || draining {
				want[fmt.Sprint(mustAddrPort(t, b).Addr.As4()[3])] = true
			}
		}
		had = has
		f := drains(clusterIP(t, vip, list...), drain*time.Second)
		l.set(t, web, f)
		l.apply(t, l.Sweep())
		var all []string
		for o := range want {
			all = append(all, o)
		}
		slices.Sort(all)
		l.wantMembers(t, fmt.Sprint("at ", now), vip, strings.Join(all, " "), strings.Join(lost, " "))
		if t.Failed() {
			return
		}
	}
}

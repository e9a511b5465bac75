package reconciler

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// inForce returns a datapath that holds what updates bring.
func inForce(t *testing.T, updates ...lb.Update) *fake {
	t.Helper()
	dp := &fake{}
	inBubble(t, dp, func(_ *testing.T, b *bench) {
		b.begin(lb.Update{})
		for _, u := range updates {
			b.Update(u)
		}
		pass(time.Minute)
	})
	dp.calls, dp.ops = nil, nil
	return dp
}

// frontends returns the addresses that are in force, as text.
func (f *fake) frontends() (out []string) {
	for key, value := range f.Frontends {
		if value.Former {
			continue
		}
		out = append(out, fmt.Sprint(key.Addr, " ", f.Services[value.Service].ServiceName))
	}
	slices.Sort(out)
	return out
}

func TestAnAgentThatStartsOnTheSameWritesNothing(t *testing.T) {
	dp := inForce(t, web(1, 1, 2), web(2))
	inBubble(t, dp, func(t *testing.T, b *bench) {
		u := web(1, 1, 2)
		two := web(2)
		for name, s := range two.Services {
			u.Services[name] = s
		}
		b.begin(u)
		pass(time.Minute)
		want(t, "operations", 0, len(dp.ops))
		if !b.isReady() {
			t.Error("not ready")
		}
	})
}

func TestWhatVanishedWhileNoAgentRanGoesWithTheFirstUpdate(t *testing.T) {
	dp := inForce(t, web(1, 1), web(2, 1))
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
		synctest.Wait()
		want(t, "before any update", []string{"10.96.0.1 default/web-1", "10.96.0.2 default/web-2"}, dp.frontends())
		b.Update(web(1, 1))
		synctest.Wait()
		want(t, "after it", []string{"10.96.0.1 default/web-1"}, dp.frontends())
	})
}

func TestFrozenServicesStayUntilTheyAreNotFrozen(t *testing.T) {
	dp := inForce(t, web(1, 1), web(2, 1))
	inBubble(t, dp, func(t *testing.T, b *bench) {
		u := web(2, 1, 2)
		u.Frozen = map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}
		b.begin(u)
		pass(time.Hour)
		want(t, "while frozen", []string{"10.96.0.1 default/web-1", "10.96.0.2 default/web-2"}, dp.frontends())
		want(t, "backends", 3, dp.backends())

		u = web(1, 7)
		u.Frozen, u.Services = map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}, nil
		b.Update(u) // its slice is good again, but the Service is not
		pass(time.Hour)
		want(t, "backends while frozen", 3, dp.backends())

		b.Update(lb.Update{Services: web(1).Services})
		pass(time.Hour)
		if got := dp.content().String(); !strings.Contains(got, "10.244.1.7:8080") || strings.Contains(got, "10.244.1.1:8080") {
			t.Errorf("not frozen any more, but what came meanwhile is not in force:\n%s", got)
		}
	})
}

func TestOfAPartialPictureOnlyWhatIsWholeCounts(t *testing.T) {
	dp := inForce(t, web(1, 1), web(2, 1), web(3, 1))
	inBubble(t, dp, func(t *testing.T, b *bench) {
		u := web(2, 9) // all of it known
		three := web(3)
		u.Services = map[lb.ServiceName]*lb.Service{}
		for name, s := range web(2).Services {
			u.Services[name] = s
		}
		for name, s := range three.Services {
			u.Services[name] = s // its slices are not
		}
		u.Partial = true
		b.begin(u)
		pass(time.Hour)
		want(t, "frontends", []string{"10.96.0.1 default/web-1", "10.96.0.2 default/web-2", "10.96.0.3 default/web-3"}, dp.frontends())
		got := dp.content().String()
		for _, backend := range []string{"10.244.1.1:", "10.244.2.9:", "10.244.3.1:"} {
			if !strings.Contains(got, backend) {
				t.Errorf("%s is not there:\n%s", backend, got)
			}
		}
		b.Update(lb.Update{})
		pass(time.Hour)
		want(t, "frontends of the whole picture", []string{"10.96.0.2 default/web-2", "10.96.0.3 default/web-3"}, dp.frontends())
		want(t, "backends of the whole picture", 1, dp.backends())
	})
}

func TestMapsThatMakeNoSenseAreReplaced(t *testing.T) {
	for name, spoil := range map[string]func(*fake){
		"content that contradicts itself": func(f *fake) { clear(f.Backends) },
		"content that cannot be read":     func(f *fake) { f.err = errors.New("no such layout") },
	} {
		t.Run(name, func(t *testing.T) {
			dp := inForce(t, web(1, 1))
			spoil(dp)
			inBubble(t, dp, func(t *testing.T, b *bench) {
				want(t, "calls of New", []string{"0s reset"}, dp.taken())
				b.begin(web(1, 1))
				want(t, "frontends", []string{"10.96.0.1 default/web-1"}, dp.frontends())
				if err := dp.content().Check(); err != nil {
					t.Error(err)
				}
				want(t, "warnings", 1, b.log.FilterMessageSnippet("inconsistent").Len())
			})
		})
	}
	dp := &fake{err: errors.New("no such layout"), fail: func(string) error { return errors.New("no memory") }}
	if _, err := New(zap.NewNop(), NewInbox(nil), dp, plan.Sizes{}); err == nil || err.Error() != "no memory" {
		t.Errorf("a reset that fails: %v", err)
	}
}

func TestSocketsOfLostBackendsAreToldOnceTheMapsAreRight(t *testing.T) {
	var broken, unsupported atomic.Bool
	dp := &fake{fail: func(call string) error {
		if broken.Load() && call == "attach" {
			return errors.New("out of order")
		}
		if unsupported.Load() && strings.HasPrefix(call, "lost") {
			return fmt.Errorf("kernel: %w", errors.ErrUnsupported)
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		lost := func() (n int) {
			for _, call := range dp.taken() {
				if strings.Contains(call, "lost") {
					n++
				}
			}
			return n
		}
		b.begin(web(1, 1, 2, 3, 4))
		broken.Store(true)
		b.Update(web(1, 1, 2, 3))
		pass(firstRetry / 2)
		want(t, "told while changes fail", 0, lost())
		broken.Store(false)
		pass(firstRetry / 2)
		want(t, "told", 1, lost())

		unsupported.Store(true)
		for _, u := range []lb.Update{web(1, 1, 2), web(1, 1)} {
			b.Update(u)
			pass(time.Minute)
		}
		want(t, "UDP sockets that are looked for though the kernel destroys none", 2, lost())
		want(t, "warnings", 1, b.log.FilterMessage("close sockets of removed backends").Len())
	})
}

func TestProblemsAreSaidOnceAndWhenTheyAreSolved(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		bad := web(1, 1)
		bad.Problems = []lb.Problem{{File: "a.yaml", Reason: "is bad"}, {File: "b.yaml", Reason: "is bad"}, {File: "b.yaml", Reason: "is bad"}}
		b.begin(bad)
		better := web(2, 1)
		better.Problems = bad.Problems[:1]
		b.Update(better)
		synctest.Wait()
		b.Update(web(3, 1))
		synctest.Wait()
		want(t, "log", []string{
			"problem a.yaml: is bad", "problem b.yaml: is bad",
			"problem solved b.yaml: is bad", "problem solved a.yaml: is bad",
		}, said(b.log))
	})
}

func TestProblemsHaveABudgetOfLogLines(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		u := web(1, 1)
		for i := range 10_000 {
			u.Problems = append(u.Problems, lb.Problem{Object: fmt.Sprint("document ", i), Reason: "is bad"})
		}
		b.begin(u)
		want(t, "lines at once", linesPerSecond+1, len(said(b.log)))
		pass(time.Second)
		b.Update(web(2, 1)) // all are solved
		synctest.Wait()
		want(t, "lines after a second", 2*(linesPerSecond+1), len(said(b.log)))
		pass(time.Second)
		one := web(3, 1)
		one.Problems = []lb.Problem{{Reason: "is bad"}}
		b.Update(one)
		synctest.Wait()
		want(t, "lines of one more", 2*(linesPerSecond+1)+1, len(said(b.log)))
	})
}

// said returns what was logged of problems.
func said(log *observer.ObservedLogs) (out []string) {
	for _, entry := range log.FilterMessageSnippet("problem").All() {
		out = append(out, entry.Message+" "+fmt.Sprint(entry.ContextMap()["problem"]))
	}
	return out
}

func TestOfManyProblemsTheRestAreCounted(t *testing.T) {
	var all []lb.Problem
	for i := range lb.MostTogether + 7 {
		all = append(all, lb.Problem{Object: fmt.Sprint("Service default/", i), Reason: "is bad"})
	}
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		saw := &spectator{}
		b.Observe(saw)
		told := func(problems, more int) {
			t.Helper()
			pass(time.Minute)
			want(t, "problems told", problems+1, len(saw.problems))
			if last := saw.problems[problems].Error(); !strings.Contains(last, fmt.Sprintf("has %d more problems", more)) {
				t.Errorf("the last problem is %q, want a count of %d more", last, more)
			}
		}
		b.begin(lb.Update{Problems: all})
		told(lb.MostTogether, 7)
		few := all[:5]
		b.Update(lb.Update{Problems: few, MoreProblems: 100})
		told(5, 100)
		b.Update(lb.Update{Problems: few, MoreProblems: 99})
		told(5, 99)
	})
}

// spectator notes the problems told last.
type spectator struct {
	blind
	problems []lb.Problem
}

func (s *spectator) Problems(p []lb.Problem) { s.problems = p }

// An address of the node is a NodePort's before that of a load balancer: so nothing is
// planned before it is known which these are, and again when they change.
func TestWhoGetsAnAddressIsDecidedByThoseOfTheNode(t *testing.T) {
	node := netip.MustParseAddr("192.0.2.1")
	u, other := web(2, 2), web(1, 1)
	for _, s := range u.Services {
		s.LoadBalancerIPs, s.Ports[0].Port = []netip.Addr{node}, 30080
	}
	for name, s := range other.Services {
		s.Ports[0].NodePort, u.Services[name] = 30080, s
	}
	for name, s := range other.Slices {
		u.Slices[name] = s
	}
	dp := &fake{}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.Update(u)
		pass(time.Minute)
		b.SetNodeAddresses(map[netip.Addr]plan.AddressKind{node: plan.NodeAddress})
		synctest.Wait()
		for _, op := range dp.ops {
			if strings.Contains(op, "192.0.2.1:30080") {
				t.Errorf("before the addresses of the node were known: %s", op)
			}
		}
		b.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
		synctest.Wait()
		if !slices.Contains(dp.frontends(), "192.0.2.1 default/web-2") {
			t.Errorf("it is no address of the node any more, but in force are %q", dp.frontends())
		}
	})
}

func TestAHeldServiceKeepsItsShare(t *testing.T) {
	dp := inForce(t, web(1, 1, 2), web(2, 1))
	inBubbleOf(t, plan.Sizes{Backends: 4}, dp, func(t *testing.T, b *bench) {
		u := web(2, 1, 2, 3)
		u.Frozen = map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}
		b.begin(u)
		pass(time.Hour)
		want(t, "backends in force", 3, dp.backends())
	})
}

// Once a Service was told of, it is known when it goes.
func TestWhatWasSeenSinceGoesBesideWhatCannotBeRead(t *testing.T) {
	dp := inForce(t, web(1, 1))
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(web(1, 1))
		u := without(1)
		u.Partial = true
		b.Update(u)
		synctest.Wait()
		want(t, "in force", 0, len(dp.frontends()))
	})
}

// While a slice is bad, what its Service had is known as endpoints, which nobody may take the
// addresses of.
func TestAnAddressIsFreeWhenABadSliceIsMended(t *testing.T) {
	dp := inForce(t, web(1, 1))
	inBubble(t, dp, func(t *testing.T, b *bench) {
		u := web(2, 1)
		for _, s := range u.Services {
			s.ExternalIPs = []netip.Addr{netip.MustParseAddr("10.244.1.1")}
		}
		for name, s := range web(1).Services {
			u.Services[name] = s
		}
		u.FrozenEndpoints = map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}
		b.begin(u)
		want(t, "while it is bad", []string{"10.96.0.1 default/web-1", "10.96.0.2 default/web-2"}, dp.frontends())
		b.Update(web(1, 2))
		synctest.Wait()
		want(t, "mended", []string{"10.244.1.1 default/web-2", "10.96.0.1 default/web-1", "10.96.0.2 default/web-2"}, dp.frontends())
	})
}

// Who has an address already loses it when it becomes known as that of an endpoint.
func TestAnAddressIsTakenWhenWhatABadSliceHadIsKnown(t *testing.T) {
	dp := inForce(t, web(1, 1))
	inBubble(t, dp, func(t *testing.T, b *bench) {
		bad := map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}
		u := web(2, 1)
		for _, s := range u.Services {
			s.ExternalIPs = []netip.Addr{netip.MustParseAddr("10.244.1.1")}
		}
		u.Frozen, u.FrozenEndpoints = bad, bad
		b.begin(u)
		want(t, "while both are bad", []string{"10.244.1.1 default/web-2", "10.96.0.1 default/web-1", "10.96.0.2 default/web-2"}, dp.frontends())
		b.Update(lb.Update{Services: web(1).Services, FrozenEndpoints: bad})
		synctest.Wait()
		want(t, "the Service is mended", []string{"10.96.0.1 default/web-1", "10.96.0.2 default/web-2"}, dp.frontends())
	})
}

// A Service that went and came again has nothing of what it was before.
func TestWhatABadSliceKeepsGoesWithItsService(t *testing.T) {
	dp := inForce(t, web(1, 1))
	inBubble(t, dp, func(t *testing.T, b *bench) {
		told := func(services map[lb.ServiceName]*lb.Service) {
			u := lb.Update{Services: services, FrozenEndpoints: map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}}
			b.Update(u)
			pass(time.Hour)
		}
		b.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
		told(web(1).Services)
		want(t, "backends while the slice is bad", 1, dp.backends())
		told(without(1).Services)
		want(t, "in force without the Service", 0, len(dp.frontends()))
		told(web(1).Services)
		want(t, "backends when it is back", 0, dp.backends())
	})
}

// Of what this process was told it knows which slice it was of: what left a good one is gone,
// though another one is bad from now on.
func TestABadSliceKeepsNothingOfTheOthers(t *testing.T) {
	dp := &fake{}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(web(1, 1, 2))
		u := web(1, 1)
		u.FrozenEndpoints = map[lb.ServiceName]bool{{Namespace: "default", Name: "web-1"}: true}
		b.Update(u)
		pass(time.Hour)
		want(t, "backends", 1, dp.backends())
	})
}

package reconciler

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

func TestAStormOfUpdatesIsDoneInFewSteps(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(lb.Update{})
		hold := make(chan struct{})
		b.dp.fail = func(call string) error {
			if call == "reserve" {
				<-hold // a slow kernel
			}
			return nil
		}
		b.dp.taken()
		b.Update(web(1, 1))
		synctest.Wait()
		var sources sync.WaitGroup
		for n := range byte(100) {
			sources.Go(func() {
				for e := range byte(10) {
					b.Update(web(n, e+1))
				}
			})
		}
		sources.Wait()
		b.dp.fail = nil
		close(hold)
		synctest.Wait()
		reserved := 0
		for _, call := range b.dp.taken() {
			if strings.HasSuffix(call, "reserve") {
				reserved++
			}
		}
		want(t, "steps", 2, reserved)
		want(t, "frontends", 100, len(b.dp.content().Frontends))
	})
}

// The first Service is changed with 1 and with 250 others beside it.
func TestAChangeCostsTheSameHoweverManyServicesThereAre(t *testing.T) {
	cost := func(others int) (calls []string) {
		inBubble(t, &fake{}, func(_ *testing.T, b *bench) {
			b.begin(web(0, 1, 2))
			for n := range others {
				b.Update(web(byte(n+1), 1, 2))
			}
			pass(time.Minute)
			b.dp.taken()
			b.Update(web(0, 1, 3))
			pass(time.Minute)
			for _, call := range b.dp.taken() {
				_, call, _ = strings.Cut(call, " ")
				kind, _, _ := strings.Cut(strings.TrimPrefix(call, "put "), " ")
				calls = append(calls, kind)
			}
		})
		return calls
	}
	few, many := cost(1), cost(250)
	want(t, "calls", few, many)
	want(t, "calls", []string{"reserve", "backend", "table", "frontend", "attach", "lost", "grace", "reserve", "clear", "attach"}, few)
}

// What is not an operation costs something, too: looking at all Services for the sake of one,
// at their health checks or at all problems would show in memory.
func TestAChangeTakesTheSameMemoryHoweverManyServicesThereAre(t *testing.T) {
	if few, many := testing.AllocsPerRun(10, changing(t, crowd(1))), testing.AllocsPerRun(10, changing(t, crowd(250))); many > 2*few {
		t.Errorf("a change makes %v allocations beside 250 Services, and %v beside one", many, few)
	}
}

// crowd is Services with health checks and without endpoints on this node, where they want
// some, and as many problems.
func crowd(n int) lb.Update {
	all := lb.Update{Node: &lb.Node{Name: "here"}, Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	for i := range n {
		u := web(byte(i>>8), 1, 2)
		for name, s := range u.Services {
			name.Namespace, s.HealthCheckNodePort, s.ExternalPolicy = fmt.Sprint("crowd-", i), 30000+uint16(i), lb.PolicyLocal
			s.ServiceName, s.ClusterIPs[0], s.LoadBalancerIPs = name, netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}), []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})}
			all.Services[name] = s
		}
		for name, s := range u.Slices {
			name.Namespace = fmt.Sprint("crowd-", i)
			s.SliceName = name
			all.Slices[name] = s
		}
		all.Problems = append(all.Problems, lb.Problem{Object: fmt.Sprint("Service broken/s-", i), Field: "spec", Reason: "no such Service", Remedy: "mend it"})
	}
	return all
}

// changing returns what changes a Service, and changes it back, beside others.
func changing(tb testing.TB, others lb.Update) func() {
	tb.Helper()
	inbox := NewInbox(nil)
	r, err := New(zap.NewNop(), inbox, &fake{}, plan.Sizes{})
	if err != nil {
		tb.Fatal(err)
	}
	r.due = newDue()
	tb.Cleanup(r.due.stop)
	inbox.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
	inbox.Update(others)
	return func() {
		for _, u := range []lb.Update{web(255, 1, 2), web(255, 1, 2, 3)} {
			u.Problems = others.Problems
			inbox.Update(u)
			r.gather()
			if err := r.bring(); err != nil {
				panic(err) // of a fake that refuses nothing
			}
			r.report()
		}
	}
}

// Two changes of a Service, beside others that do not change.
func BenchmarkChangeBeside(b *testing.B) {
	for _, n := range []int{1, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			change := changing(b, crowd(n))
			change()
			b.ReportAllocs()
			for b.Loop() {
				change()
			}
		})
	}
}

func TestWhatRetiresIsClearedAfterASecond(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1))
		b.Update(web(1, 2))
		synctest.Wait()
		b.dp.taken()
		pass(sweepAfter - 1)
		want(t, "calls before", 0, len(b.dp.taken()))
		pass(1)
		want(t, "calls", []string{"1s grace", "1s reserve", "1s clear backend 1", "1s attach"}, b.dp.taken())
		pass(time.Hour)
		want(t, "calls after", 0, len(b.dp.taken()))
	})
}

func TestChangesWithoutEndDoNotPutOffTheSweep(t *testing.T) {
	inBubble(t, &fake{}, func(t *testing.T, b *bench) {
		b.begin(web(1, 1))
		for n := range byte(200) {
			b.Update(web(1, n+1))
			pass(sweepAfter / 2)
		}
		if n := b.dp.backends(); n > 5 {
			t.Errorf("%d backends are in the map, one is in use", n)
		}
	})
}

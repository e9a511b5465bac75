package reconciler

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// backendsOf returns the backends of each frontend in force, whatever their IDs, but not those of former frontends.
func backendsOf(c plan.Content) map[string][]string {
	out := map[string][]string{}
	for at, f := range c.Frontends {
		if f.Former {
			continue
		}
		backends := []string{}
		for _, id := range c.Tables[f.Views[lb.External].Table] {
			backends = append(backends, c.Backends[id].String())
		}
		slices.Sort(backends)
		out[at.String()] = slices.Compact(backends)
	}
	return out
}

// refusals fails operations of web-N for each N, of some kinds.
type refusals struct {
	services map[byte]bool
	kinds    []string
	lifted   atomic.Bool
}

func (r *refusals) fail(call string) error {
	if r.lifted.Load() || !slices.ContainsFunc(r.kinds, func(kind string) bool { return strings.HasPrefix(call, kind) }) {
		return nil
	}
	for n := range r.services {
		for _, of := range []string{fmt.Sprintf(" 10.96.0.%d:", n), fmt.Sprintf(" 10.96.0.%d ", n), fmt.Sprintf("default/web-%d/", n)} {
			if strings.Contains(call+" ", of) {
				return errors.New("cannot allocate memory")
			}
		}
	}
	return nil
}

// someRefusals fails some kinds of operations of some Services.
func someRefusals(chance *rand.Rand, services byte) *refusals {
	r := &refusals{services: map[byte]bool{}}
	for n := range services {
		if chance.IntN(4) == 0 {
			r.services[n] = true
		}
	}
	for _, kind := range []string{"put frontend", "put address", "put service", "delete frontend", "delete address"} {
		if chance.IntN(2) == 0 {
			r.kinds = append(r.kinds, kind)
		}
	}
	return r
}

// withoutMemory is a datapath with room for ten Services, which finds memory for more as long as memory says so.
func withoutMemory(memory *atomic.Bool) *fake {
	memory.Store(true)
	return &fake{room: roomFor(10), grace: graceTakes, fail: func(call string) error {
		if !memory.Load() && (call == "reserve larger" || call == "prepare") {
			return errors.New("cannot allocate memory")
		}
		return nil
	}}
}

// someUpdate changes a Service, or ends it.
func someUpdate(chance *rand.Rand, services byte) lb.Update {
	n := byte(chance.IntN(int(services)))
	if chance.IntN(4) == 0 {
		return without(n)
	}
	endpoints := []byte{}
	for e := range byte(4) {
		if chance.IntN(2) == 0 {
			endpoints = append(endpoints, e+1)
		}
	}
	return web(n, endpoints...)
}

// TestOperationsThatFailStopNoOtherService fails operations of some Services for good, while all change: all others are in
// force at once, as where nothing fails, and what is in force contradicts itself at no time. Each Service that is left out
// is a problem. Once nothing fails any more, all are in force.
func TestOperationsThatFailStopNoOtherService(t *testing.T) {
	const services = 12
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			told := &told{}
			story := func(t *testing.T, dp *fake, each func(b *bench), end func(b *bench)) {
				chance := rand.New(rand.NewPCG(seed, 1))
				inBubble(t, dp, func(t *testing.T, b *bench) {
					b.Observe(told)
					b.begin(lb.Update{})
					for range 40 {
						b.Update(someUpdate(chance, services))
						pass(time.Duration(chance.IntN(3000)) * time.Millisecond)
						each(b)
					}
					end(b)
				})
			}
			var expected []map[string][]string
			note := func(b *bench) { expected = append(expected, backendsOf(b.dp.content())) }
			story(t, &fake{}, note, note)

			refused := someRefusals(rand.New(rand.NewPCG(seed, 2)), services)
			isRefused := func(frontend string, _ []string) bool {
				return slices.ContainsFunc(slices.Collect(maps.Keys(refused.services)), func(n byte) bool {
					return strings.HasPrefix(frontend, fmt.Sprintf("10.96.0.%d:", n))
				})
			}
			step := 0
			story(t, &fake{fail: refused.fail}, func(b *bench) {
				content := b.dp.content()
				if err := content.Check(); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				wanted, got := expected[step], backendsOf(content)
				for n := range refused.services {
					at := fmt.Sprintf("10.96.0.%d:80/TCP", n)
					if problem := fmt.Sprintf("Service default/web-%d: ", n); !slices.Equal(wanted[at], got[at]) && !strings.Contains(told.said(), problem) {
						t.Errorf("step %d: %s has %v, want %v, and no problem says so: %s", step, at, got[at], wanted[at], told.said())
					}
				}
				maps.DeleteFunc(wanted, isRefused)
				maps.DeleteFunc(got, isRefused)
				want(t, fmt.Sprintf("step %d: the other Services", step), wanted, got)
				step++
			}, func(b *bench) {
				refused.lifted.Store(true)
				pass(longestRefusal + time.Minute)
				want(t, "all Services once nothing fails", expected[step], backendsOf(b.dp.content()))
				want(t, "problems", "[]", told.said())
			})
		})
	}
}

// TestServicesWithoutRoomStopNoOther has no memory for larger maps: Services that came first go on changing.
func TestServicesWithoutRoomStopNoOther(t *testing.T) {
	var memory atomic.Bool
	dp := withoutMemory(&memory)
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 10))
		memory.Store(false)
		b.Update(fleet(10, 1000))
		synctest.Wait()
		b.Update(web(1, 1))
		one := fleet(0, 1)
		for _, slice := range one.Slices {
			slice.Endpoints = slice.Endpoints[:1]
		}
		b.Update(one)
		pass(time.Second)
		for at, backends := range backendsOf(dp.content()) {
			if strings.HasPrefix(at, "172.16.0.0:") && len(backends) != 1 {
				t.Errorf("%s has backends %v, want one", at, backends)
			}
		}
		memory.Store(true)
		pass(longestRefusal + time.Minute)
		want(t, "frontends in force", 1001, len(dp.content().Frontends))
	})
}

// TestServicesWithoutRoomAreTriedEverLessOften has nothing come and go but what has no room, while something waits for a
// sweep: neither the sweep nor the tries follow each other without a pause.
func TestServicesWithoutRoomAreTriedEverLessOften(t *testing.T) {
	var memory atomic.Bool
	dp := withoutMemory(&memory)
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 10))
		memory.Store(false)
		b.Update(web(1, 1, 2))
		synctest.Wait()
		b.Update(web(1, 1)) // the other one retires
		b.Update(fleet(10, 1000))
		pass(time.Minute)
		dp.taken()
		pass(10 * time.Minute)
		if calls := len(dp.taken()); calls > 400 {
			t.Errorf("%d calls in ten minutes", calls)
		}
		want(t, "backends of what changed", []string{"10.244.1.1:8080/TCP"}, backendsOf(dp.content())["10.96.0.1:80/TCP"])
	})
}

// TestAGracePeriodPassesBeforeItIsPlannedAnew since programs may read what was replaced just before.
func TestAGracePeriodPassesBeforeItIsPlannedAnew(t *testing.T) {
	var broken atomic.Bool
	dp := &fake{fail: func(call string) error {
		if broken.Load() && strings.HasPrefix(call, "put frontend 10.96.0.2:") {
			return errors.New("cannot allocate memory")
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(web(1, 1, 2))
		dp.taken()
		broken.Store(true)
		u := web(2, 1)
		one := web(1, 2, 3)
		maps.Copy(u.Services, one.Services)
		maps.Copy(u.Slices, one.Slices)
		b.Update(u)
		synctest.Wait()
		failed := false
		for _, call := range dp.taken() {
			_, op, _ := strings.Cut(call, " ")
			switch {
			case strings.HasPrefix(op, "put frontend 10.96.0.2:"):
				failed = true
			case failed:
				want(t, "the call after the failure", "grace", op)
				return
			}
		}
		t.Error("nothing has failed, or nothing came after it")
	})
}

// TestAServiceThatIsLeftOutIsNotOfferedToLoadBalancers until it is in force.
func TestAServiceThatIsLeftOutIsNotOfferedToLoadBalancers(t *testing.T) {
	refused := &refusals{services: map[byte]bool{1: true}, kinds: []string{"put frontend"}}
	inBubble(t, &fake{fail: refused.fail}, func(t *testing.T, b *bench) {
		told := &told{}
		b.Observe(told)
		u := web(1, 1)
		for _, s := range u.Services {
			s.HealthCheckNodePort = 32000
		}
		b.begin(u)
		want(t, "health checks", 0, told.healthChecks())
		refused.lifted.Store(true)
		pass(time.Minute)
		want(t, "health checks once it is in force", 1, told.healthChecks())
	})
}

// told is an observer that notes what it is told.
type told struct {
	blind
	mu       sync.Mutex
	checks   int // health checks
	problems []lb.Problem
}

func (o *told) Flushed(a Attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checks += len(a.HealthChecks)
}

func (o *told) Problems(all []lb.Problem) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.problems = all
}

func (o *told) healthChecks() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.checks
}

func (o *told) said() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprint(o.problems)
}

// TestManyServicesThatFailDelayOthersForSeconds has the operations of 300 Services fail that come before another one.
func TestManyServicesThatFailDelayOthersForSeconds(t *testing.T) {
	dp := &fake{fail: func(call string) error {
		if strings.HasPrefix(call, "put frontend 172.16.") {
			return errors.New("cannot allocate memory")
		}
		return nil
	}}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		u := fleet(0, 300)
		last := web(1, 1) // whose name is the last one
		maps.Copy(u.Services, last.Services)
		maps.Copy(u.Slices, last.Slices)
		b.begin(u)
		pass(2 * time.Second)
		want(t, "the last one", []string{"10.244.1.1:8080/TCP"}, backendsOf(dp.content())["10.96.0.1:80/TCP"])
		dp.taken()
		pass(time.Hour)
		b.Update(web(1, 2))
		pass(2 * time.Second)
		want(t, "the last one, changed", []string{"10.244.1.2:8080/TCP"}, backendsOf(dp.content())["10.96.0.1:80/TCP"])
	})
}

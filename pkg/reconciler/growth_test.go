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

	"github.com/headgate/headgate/pkg/lb"
)

// preparationTakes is how long a preparation of larger maps takes here.
const preparationTakes = time.Second

func TestMapsGrowAheadOfNeedWhileChangesGoOn(t *testing.T) {
	inBubble(t, &fake{prepares: preparationTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		want(t, "preparations with room for 60 % more", int64(0), b.dp.prepared.Load())
		b.Update(fleet(100, 130))
		pass(preparationTakes / 2)
		want(t, "preparations with room for 23 % more", int64(1), b.dp.prepared.Load())
		b.Update(fleet(130, 131))
		synctest.Wait()
		b.wantFleet(t, 131, 0)
		pass(preparationTakes)
		b.wantFleet(t, 131, 1)
		b.Update(fleet(131, 161)) // more than there was room for
		synctest.Wait()
		b.wantFleet(t, 161, 1)
		b.end()
		<-b.ended
	})
}

func TestWhatIsNeededBeforeItIsPreparedGrowsAtOnce(t *testing.T) {
	inBubble(t, &fake{prepares: preparationTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 130))
		b.Update(fleet(130, 300))
		synctest.Wait()
		b.wantFleet(t, 300, 1)
		b.end()
		<-b.ended
	})
}

func TestConnectionsAreCountedAnewOnceMapsHaveGrown(t *testing.T) {
	inBubble(t, &fake{room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		pass(lookEvery)
		want(t, "recounts before", int64(1), b.dp.recounts.Load())
		b.Update(fleet(100, 130))
		pass(lookEvery)
		want(t, "recounts after growth", int64(2), b.dp.recounts.Load())
	})
}

func TestWhatCannotBePreparedIsAProblemAndTriedAgain(t *testing.T) {
	dp := &fake{room: roomFor(100)}
	dp.fail = func(call string) error {
		if call == "prepare" && dp.prepared.Load() < 3 {
			return errors.New("cannot allocate memory")
		}
		return nil
	}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 130))
		problem := `the maps: cannot grow: cannot allocate memory`
		said := func() bool { return strings.Contains(fmt.Sprint(b.allProblems()), problem) }
		pass(lastRetry - time.Second)
		want(t, "tries within the first period", int64(1), dp.prepared.Load())
		want(t, "it is a problem", true, said())
		b.input.Problems = make([]lb.Problem, lb.MostTogether)
		all := lb.Bounded("the input", b.allProblems())
		want(t, "the first of very many problems is of the node", lb.ScopeNode, all[0].Scope)
		want(t, "the last counts those of objects", lb.ScopeObject, all[len(all)-1].Scope)
		b.input.Problems = nil
		b.Update(fleet(130, 140))
		synctest.Wait()
		b.wantFleet(t, 140, 0)
		pass(2*lastRetry + lookEvery)
		want(t, "tries until there is memory", int64(3), dp.prepared.Load())
		want(t, "it is a problem still", false, said())
		b.wantFleet(t, 140, 1)
	})
}

// Each Service gets other endpoints: those that they had go with the sweep.
func TestRunsThatRetireInBulkDoNotMakeMapsGrow(t *testing.T) {
	inBubble(t, &fake{grace: graceTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		b.Update(moved(fleet(0, 50)))
		synctest.Wait()
		var crowded bool
		_ = b.Inbox.ask(t.Context(), lb.Drained{}, func(r *Reconciler) bool { // the loop goes on
			crowded = r.isCrowded()
			return false
		})
		want(t, "what waits for a sweep is more than there is to spare", true, crowded)
		pass(graceTakes + time.Millisecond)
		want(t, "a sweep that makes room is not put off", 0, b.planner.Retired())
		pass(time.Minute)
		b.wantFleet(t, 100, 0)
		want(t, "preparations", int64(0), b.dp.prepared.Load())
	})
}

// moved gives Services other endpoints.
func moved(u lb.Update) lb.Update {
	for _, s := range u.Slices {
		for i := range s.Endpoints {
			a := s.Endpoints[i].Addr.As4()
			a[0] = 11
			s.Endpoints[i].Addr = netip.AddrFrom4(a)
		}
	}
	return u
}

func TestAnAgentThatEndsWhileItPreparesDoesNotGrow(t *testing.T) {
	inBubble(t, &fake{prepares: preparationTakes, room: roomFor(100)}, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 130))
		want(t, "preparations under way", int64(1), b.dp.prepared.Load())
		b.end()
		<-b.ended
		b.wantFleet(t, 130, 0)
	})
}

// While the maps are nearly full of what waits for a sweep, changes wait for it, too, and maps
// do not grow.
func TestAChangeWaitsForASweepRatherThanThatMapsGrow(t *testing.T) {
	for _, c := range []struct {
		name                   string
		fail                   error
		growths, atOnce, later int
	}{
		{"grace periods pass", nil, 0, 100, 101},
		{"no grace period passes", errors.New("no membarrier"), 0, 101, 101},
	} {
		t.Run(c.name, func(t *testing.T) {
			dp := &fake{grace: graceTakes, room: roomFor(100)}
			dp.fail = func(call string) error {
				if call == "grace" {
					return c.fail
				}
				return nil
			}
			inBubble(t, dp, func(t *testing.T, b *bench) {
				b.begin(fleet(0, 100))
				b.Update(gone(fleet(0, 1))) // for a grace period that fails
				pass(sweepAfter + 2*graceTakes)
				b.Update(fleet(0, 1))
				b.Update(moved(fleet(0, 50)))
				synctest.Wait()
				b.Update(moved(fleet(100, 101)))
				synctest.Wait()
				want(t, "frontends at once", c.atOnce, len(dp.content().Frontends))
				pass(2*graceTakes + time.Millisecond)
				want(t, "frontends after the sweep", c.later, len(dp.content().Frontends))
				want(t, "growths of maps", c.growths, int(dp.grown.Load()))
				b.end()
				<-b.ended
			})
		})
	}
}

// A drain time that ends while changes wait for a sweep is not looked at again and again.
func TestTheLoopRestsWhileABackendThatIsDrainedWaitsForASweep(t *testing.T) {
	dp := &fake{grace: graceTakes, room: roomFor(100)}
	var turns atomic.Int64
	dp.fail = func(call string) error {
		if call == "reserve" {
			turns.Add(1)
			time.Sleep(time.Microsecond) // or time would stand still where the loop does not rest
		}
		return nil
	}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 100))
		b.Update(draining(graceTakes/2, 1, 1, 2))
		pass(time.Millisecond)
		b.Update(draining(graceTakes/2, 1, 2))
		b.Update(moved(fleet(0, 50)))
		pass(time.Millisecond)
		turns.Store(0)
		pass(graceTakes - 2*time.Millisecond)
		want(t, "turns while they wait", int64(1), turns.Load())
		want(t, "told while they wait", false, slices.ContainsFunc(dp.lost(), isOfWeb1))
		pass(2 * graceTakes)
		want(t, "told after the sweep", true, slices.ContainsFunc(dp.lost(), isOfWeb1))
		b.end()
		<-b.ended
	})
}

// isOfWeb1 says whether a call tells of the first endpoint of web(1).
func isOfWeb1(call string) bool { return strings.HasSuffix(call, "lost 10.244.1.1:8080/TCP") }

// Maps that cannot grow ahead of need hold what there is room for.
func TestChangesWithRoomDoNotWaitForGrowthThatFails(t *testing.T) {
	const larger = "reserve larger"
	var hasMemory atomic.Bool
	dp := &fake{room: roomFor(100)}
	dp.fail = func(call string) error {
		if call == larger && !hasMemory.Load() {
			return errors.New("cannot allocate memory")
		}
		return nil
	}
	inBubble(t, dp, func(t *testing.T, b *bench) {
		b.begin(fleet(0, 130))
		b.Update(fleet(130, 140))
		synctest.Wait()
		b.wantFleet(t, 140, 0)
		tries := func() int {
			return len(slices.DeleteFunc(dp.taken(), func(c string) bool { return !strings.HasSuffix(c, larger) }))
		}
		want(t, "tries at once", 1, tries())
		want(t, "warnings", 1, b.log.FilterMessage("make larger maps ahead of need, will try again").Len())
		pass(lastRetry + lookEvery)
		want(t, "tries later", 1, tries())
		b.Update(fleet(140, 170)) // more than there is room for
		pass(time.Minute)
		b.wantFleet(t, 140, 0)
		hasMemory.Store(true)
		pass(time.Minute)
		want(t, "frontends once there is memory", 170, len(dp.content().Frontends))
	})
}

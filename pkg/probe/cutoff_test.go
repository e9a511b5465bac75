package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// edge is a prober with backends outside, of which some do not answer, and what it says of them.
type edge struct {
	watched
	backends []lb.AddrPort
	mu       sync.Mutex
	silent   map[netip.Addr]bool
	bad      map[lb.AddrPort]bool
	problems []lb.Problem
}

// atAnEdge runs a test with so many backends, which are asked every second, in time that passes when all wait.
func atAnEdge(t *testing.T, backends int, outside bool, test func(*testing.T, *edge)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &edge{watched: newWatched(3), silent: map[netip.Addr]bool{}, bad: map[lb.AddrPort]bool{}}
		e.cfg.Problems = func(all []lb.Problem) { e.mu.Lock(); defer e.mu.Unlock(); e.problems = all }
		e.cfg.Notify = func(_ context.Context, v Verdict) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if delete(e.bad, v.Backend); v.Err != nil {
				e.bad[v.Backend] = true
			}
		}
		e.ask = func(_ context.Context, to target, _ time.Duration) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.silent[to.at.Addr()] {
				return errors.New("no answer")
			}
			return nil
		}
		for i := range backends {
			e.backends = append(e.backends, backendAt(t, fmt.Sprintf("198.51.100.%d:80", i+1)))
		}
		frontends := probing(httpProbe("/"), e.backends...)
		if outside {
			frontends[0].Carried, frontends[0].Homes = true, map[lb.AddrPort]string{}
			for _, b := range e.backends {
				frontends[0].Homes[b] = b.Addr.String()
			}
		}
		e.SetFrontends(name("web"), frontends)
		e.run(t)
		time.Sleep(10 * interval)
		test(t, e)
	})
}

// hears lets some seconds pass in which none but some backends answer.
func (e *edge) hears(seconds int, backends ...int) {
	e.mu.Lock()
	for i, b := range e.backends {
		e.silent[b.Addr] = !slices.Contains(backends, i)
	}
	e.mu.Unlock()
	time.Sleep(time.Duration(seconds) * time.Second)
	synctest.Wait()
}

// wantBad compares what is said of backends.
func (e *edge) wantBad(t *testing.T, when string, backends ...int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	want := map[lb.AddrPort]bool{}
	for _, i := range backends {
		want[e.backends[i]] = true
	}
	if !maps.Equal(e.bad, want) {
		t.Errorf("%s: bad are %v, want %v", when, e.bad, want)
	}
}

func (e *edge) wantProblems(t *testing.T, when string, want int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.problems) != want {
		t.Errorf("%s: problems %v, want %d", when, e.problems, want)
	}
}

// An edge that hears nobody does not know how backends are: once it is back, each is what it was.
func TestAnEdgeThatIsCutOffTakesNoBackendForDead(t *testing.T) {
	for round := range 20 { // targets are asked in another order each time
		atAnEdge(t, 3, true, func(t *testing.T, e *edge) {
			e.hears(2 + round)
			e.wantBad(t, "cut off")
			e.wantProblems(t, "cut off", 1)
			e.hears(1, 0, 1, 2)
			e.wantBad(t, "back")
			e.wantProblems(t, "back", 0)
		})
	}
}

func TestABackendThatWasDeadBeforeStaysSo(t *testing.T) {
	atAnEdge(t, 3, true, func(t *testing.T, e *edge) {
		e.hears(5, 1, 2)
		e.wantBad(t, "the first is dead", 0)
		for range 10 {
			e.hears(3)
			e.wantBad(t, "cut off", 0)
		}
		e.hears(1, 1, 2)
		e.wantBad(t, "back", 0)
		e.hears(5, 1, 2)
		e.wantBad(t, "a while later", 0)
		e.hears(1, 0, 1, 2)
		e.wantBad(t, "alive")
	})
}

// What dies while the edge is cut off is found out afterwards.
func TestABackendThatDiesMeanwhileIsFoundOut(t *testing.T) {
	atAnEdge(t, 3, true, func(t *testing.T, e *edge) {
		e.hears(30)
		e.hears(1, 1, 2)
		e.wantBad(t, "just back")
		e.hears(4, 1, 2)
		e.wantBad(t, "after three failures", 0)
	})
}

// The last backend of all that dies is no reason to take an edge for cut off, nor are those of which nodes are the homes.
func TestOthersAreDeadWhenNoneAnswers(t *testing.T) {
	atAnEdge(t, 1, true, func(t *testing.T, e *edge) {
		e.hears(5)
		e.wantBad(t, "the only one", 0)
	})
	atAnEdge(t, 2, false, func(t *testing.T, e *edge) {
		e.hears(5)
		e.wantBad(t, "none is outside", 0, 1)
		e.wantProblems(t, "none is outside", 0)
	})
}

package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// reuse sees that nothing is written over, or named anew, that a program may
// still hold: what was named at some time, and is not for less than a grace
// period. Time is the number of operations.
type reuse struct {
	now, safe int            // the present; when the youngest grace period that has passed began
	named     map[string]int // when a thing was named for the last time
}

// passed notes that a grace period has passed.
func (r *reuse) passed(began int) { r.safe = max(r.safe, began) }

// check returns an error if an operation that comes next is too early.
func (r *reuse) check(m Model, op Op) error {
	if r == nil {
		return nil
	}
	r.now++
	if r.named == nil {
		r.named = map[string]int{}
	}
	c := m.Content()
	for _, f := range c.Frontends {
		r.named[fmt.Sprint("service ", f.Service)] = r.now
		for _, t := range f.Tables() {
			for i := range t.Size {
				r.named[fmt.Sprint("slot ", t.Offset+i)] = r.now
			}
		}
	}
	switch o := op.(type) {
	case DeleteFrontend:
		r.named[fmt.Sprint("place of ", o.Key)] = r.now
	case PutFrontend:
		if o.Anew {
			r.named[fmt.Sprint("place of ", o.Key)] = r.now
		}
	}
	for _, ids := range c.Tables {
		for _, id := range ids {
			r.named[fmt.Sprint("backend ", id)] = r.now
		}
	}
	for _, thing := range touched(op) {
		if at, ok := r.named[thing]; ok && at > r.safe {
			return fmt.Errorf("%s was named at %d, and the last grace period began at %d", thing, at, r.safe)
		}
	}
	if op == (Grace{}) {
		r.passed(r.now)
	}
	return nil
}

// touched returns what nobody may hold when an operation is done.
func touched(op Op) (things []string) {
	switch o := op.(type) {
	case PutBackend:
		things = append(things, fmt.Sprint("backend ", o.ID))
	case ClearBackend:
		things = append(things, fmt.Sprint("backend ", o.ID))
	case PutService:
		things = append(things, fmt.Sprint("service ", o.ID))
	case ClearService:
		things = append(things, fmt.Sprint("service ", o.ID))
	case PutTable:
		for i := range o.Table.Size {
			things = append(things, fmt.Sprint("slot ", o.Table.Offset+i))
		}
	case ClearFrontend:
		things = append(things, fmt.Sprint("place of ", o.Key))
	}
	return things
}

func TestNothingIsUsedAgainBeforeAGracePeriodHasPassed(t *testing.T) {
	for seed := range uint64(30) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 3)), state: map[lb.ServiceName][]lb.Frontend{}}
		l := &lab{Planner: New(fewOfAll), reuse: &reuse{}}
		var mark Mark
		began, waiting := 0, false
		for range 150 {
			ops, _ := l.Set(w.change()) // it may have to wait
			l.apply(t, ops)
			l.recount(t)
			switch w.IntN(4) {
			case 0:
				if !waiting {
					mark, began, waiting = l.Mark(), l.reuse.now, true
				}
			case 1:
				if waiting {
					l.reuse.passed(began)
					l.apply(t, l.SweepTo(mark))
					waiting = false
				}
			}
		}
		for name := range w.state {
			delete(w.state, name)
			l.set(t, name)
		}
		l.apply(t, l.Sweep())
		if got := l.model.Content().String(); got != "" {
			t.Errorf("seed %d: left behind:\n%s", seed, got)
		}
		if got := l.Needs(); got != (Sizes{Backends: 1, Services: 1}) {
			t.Errorf("seed %d: sizes of nothing: %+v", seed, got)
		}
	}
}

func TestWhatGoesWhileAGracePeriodPassesWaitsForTheNext(t *testing.T) {
	l := &lab{Planner: New(Sizes{}), reuse: &reuse{}}
	at, a, b, c := "10.96.0.1:80/TCP", "10.0.0.1:80/TCP", "10.0.0.2:80/TCP", "10.0.0.3:80/TCP"
	l.set(t, web, clusterIP(t, at, a, b, c))
	l.set(t, web, clusterIP(t, at, c)) // a and b go before it,
	mark := l.Mark()
	l.set(t, web, clusterIP(t, at, a, c)) // and a comes back
	l.set(t, web, clusterIP(t, at, c))    // and goes again,
	l.set(t, api, clusterIP(t, "10.96.0.2:80/TCP"))
	l.set(t, api) // and so does a frontend
	l.reuse.passed(l.reuse.now)
	l.apply(t, l.SweepTo(mark))
	wantOps(t, l.ops, "clear backend 2\n")
	l.set(t, api, clusterIP(t, "10.96.0.2:80/TCP"))
	wantOps(t, l.ops, `
put frontend 10.96.0.2:80/TCP kind ClusterIP service 2 internal none external none
put address 10.96.0.2 service
`)
	l.apply(t, l.SweepTo(l.Mark()))
	wantOps(t, l.ops, "clear frontend 10.96.0.2:80/TCP\nclear backend 1\n")
	if l.Retired() > 0 {
		t.Errorf("%d are retired for good", l.Retired())
	}
}

package kube

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/headgate/headgate/pkg/lb"
)

// name is the name of an object, "" as namespace where it has none.
type name struct {
	Namespace string
	Name      string
}

// subject is an object, or with an empty name all of a kind.
type subject struct {
	kind string
	name
}

func (s subject) compare(o subject) int {
	return cmp.Or(cmp.Compare(s.kind, o.kind), cmp.Compare(s.Namespace, o.Namespace), cmp.Compare(s.Name, o.Name))
}

// batch gathers what is to be passed on next. However many changes arrive while
// the last batch is being taken, each object is in it once, as it is now.
type batch struct {
	node string        // name of this node
	wake chan struct{} // has an element while there is news

	mu       sync.Mutex
	waiting  map[string]bool // kinds without which nothing is passed on
	started  bool
	news     bool
	update   lb.Update
	problems map[subject][]lb.Problem
	holds    map[subject]lb.ServiceName
	stale    bool // the next two are not what the last two say

	allProblems []lb.Problem // never written to once made, like the next
	allHolds    map[lb.ServiceName]bool
}

func newBatch(node string, waitFor ...string) *batch {
	b := &batch{
		node:     node,
		wake:     make(chan struct{}, 1),
		waiting:  map[string]bool{},
		stale:    true,
		problems: map[subject][]lb.Problem{},
		holds:    map[subject]lb.ServiceName{},
	}
	for _, kind := range waitFor {
		b.waiting[kind] = true
	}
	b.empty()
	// Whoever is told of a node that nobody knows must know its name at least.
	b.update.Node = &lb.Node{Name: node}
	return b
}

func (b *batch) empty() {
	b.update = lb.Update{Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	b.news = false
}

// change alters the batch by a function, alone, and wakes who takes it.
func (b *batch) change(alter func()) {
	b.mu.Lock()
	alter()
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default: // it is being woken already
	}
}

// note says what is wrong with an object, no problems where nothing is, and
// which Service waits for it to become good, if any. Call it within change.
func (b *batch) note(s subject, problems []lb.Problem, hold lb.ServiceName) {
	if slices.Equal(b.problems[s], problems) && b.holds[s] == hold {
		return
	}
	b.stale, b.news = true, true
	b.problems[s], b.holds[s] = problems, hold
	if len(problems) == 0 {
		delete(b.problems, s)
	}
	if hold == (lb.ServiceName{}) {
		delete(b.holds, s)
	}
}

// answered notes that the API server has said all there is of a kind. Call it
// within change.
func (b *batch) answered(kind string) { delete(b.waiting, kind) }

// next returns what is to be passed on; ok is false where that is nothing yet.
func (b *batch) next() (u lb.Update, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || b.started && !b.news {
		return lb.Update{}, false
	}
	b.started = true
	if b.stale {
		b.account()
	}
	u = b.update
	u.Problems, u.Hold = b.allProblems, b.allHolds
	b.empty()
	return u, true
}

// account makes anew what every update says in full.
func (b *batch) account() {
	b.stale, b.allProblems, b.allHolds = false, nil, map[lb.ServiceName]bool{}
	for _, s := range slices.SortedFunc(maps.Keys(b.problems), subject.compare) {
		b.allProblems = append(b.allProblems, b.problems[s]...)
	}
	for _, owner := range b.holds {
		b.allHolds[owner] = true
	}
}

// synced says whether everything has been passed on once.
func (b *batch) synced() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.started
}

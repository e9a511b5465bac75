package objects

import (
	"slices"
	"sync"

	"github.com/headgate/headgate/pkg/lb"
)

// Batch gathers what is to be passed on next. However many changes arrive while
// the last batch is being taken, each object is in it once, as it is now.
type Batch struct {
	wake chan struct{} // has an element while there is news

	mu       sync.Mutex
	waiting  map[string]bool // kinds without which nothing is passed on
	started  bool
	news     bool
	partial  bool
	update   lb.Update
	problems map[ID][]lb.Problem
	frozen   map[ID]lb.ServiceName

	broken broken // the objects that have problems
	told   told   // what updates say of problems and of what is frozen, in full
}

// told is what every update says in full. Nothing of it is written to once it is made.
type told struct {
	stale, staleFrozen bool // it is not what the batch knows

	problems        []lb.Problem // lb.MostTogether at most
	frozenServices  map[lb.ServiceName]bool
	frozenEndpoints map[lb.ServiceName]bool
}

// NewBatch returns a batch with nothing but the name of this node in it, of which nothing
// is passed on before all is known of some kinds.
func NewBatch(node string, waitFor ...string) *Batch {
	b := &Batch{
		wake:     make(chan struct{}, 1),
		waiting:  map[string]bool{},
		told:     told{stale: true, staleFrozen: true},
		problems: map[ID][]lb.Problem{},
		frozen:   map[ID]lb.ServiceName{},
	}
	for _, kind := range waitFor {
		b.waiting[kind] = true
	}
	b.empty()
	// Whoever is told of a node that nobody knows must know its name at least.
	b.update.Node = &lb.Node{Name: node}
	return b
}

func (b *Batch) empty() {
	b.update = lb.Update{Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	b.news = false
}

// change alters the batch by a function, alone, and wakes who takes it.
func (b *Batch) change(alter func()) {
	b.mu.Lock()
	alter()
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default: // it is being woken already
	}
}

// Wake returns what has an element when there may be something to pass on.
func (b *Batch) Wake() <-chan struct{} { return b.wake }

// Note says what is wrong with an object or something else, no problems where nothing is.
func (b *Batch) Note(id ID, problems []lb.Problem) {
	b.change(func() { b.note(id, problems, lb.ServiceName{}) })
}

// Answered notes that all there is of a kind has been said.
func (b *Batch) Answered(kind string) { b.change(func() { delete(b.waiting, kind) }) }

// SetPartial says whether some input cannot be read at all.
func (b *Batch) SetPartial(partial bool) {
	b.change(func() { b.news, b.partial = b.news || partial != b.partial, partial })
}

// note is Note, and says which Service waits for the object to become good, if any. Call
// it within change.
func (b *Batch) note(id ID, problems []lb.Problem, frozen lb.ServiceName) {
	before, wasFrozen := b.problems[id], b.frozen[id]
	if slices.Equal(before, problems) && wasFrozen == frozen {
		return
	}
	b.told.stale, b.news = true, true
	b.told.staleFrozen = b.told.staleFrozen || wasFrozen != frozen
	b.broken.note(id, len(before), len(problems))
	b.problems[id], b.frozen[id] = problems, frozen
	if len(problems) == 0 {
		delete(b.problems, id)
	}
	if frozen == (lb.ServiceName{}) {
		delete(b.frozen, id)
	}
}

// Next returns what is to be passed on; ok is false where that is nothing yet.
func (b *Batch) Next() (u lb.Update, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || b.started && !b.news {
		return lb.Update{}, false
	}
	b.started = true
	b.account()
	u = b.update
	u.Problems, u.MoreProblems = b.told.problems, b.broken.problems-len(b.told.problems)
	u.Frozen, u.FrozenEndpoints, u.Partial = b.told.frozenServices, b.told.frozenEndpoints, b.partial
	b.empty()
	return u, true
}

// account makes anew what every update says in full, where that has changed.
func (b *Batch) account() {
	t := &b.told
	if t.stale {
		t.stale, t.problems = false, b.broken.first(b.problems)
	}
	if !t.staleFrozen {
		return
	}
	t.staleFrozen, t.frozenServices, t.frozenEndpoints = false, map[lb.ServiceName]bool{}, map[lb.ServiceName]bool{}
	for id, owner := range b.frozen {
		if id.Kind == SliceKind {
			t.frozenEndpoints[owner] = true
		} else {
			t.frozenServices[owner] = true
		}
	}
}

// Synced says whether everything has been passed on once.
func (b *Batch) Synced() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.started
}

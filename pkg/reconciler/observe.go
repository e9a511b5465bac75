package reconciler

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Observer is told what a reconciler does, from Run.
type Observer interface {
	// Flushed says that an attempt to bring changes into the kernel has ended.
	Flushed(Attempt)
	// Problems says everything that is wrong now.
	Problems([]lb.Problem)
	// Force says every few seconds whether all programs are in force.
	Force(Force)
}

// Attempt is one try to bring changes into the kernel.
type Attempt struct {
	Began, Ended time.Time
	Err          error
	// Batch is what has come since the last attempt that succeeded.
	Batch Batch
	// HealthChecks is what load balancers may be answered from now on, of the Services of
	// which that has changed, after a success. One with port 0 has no health check any more.
	HealthChecks map[lb.ServiceName]lb.HealthCheck
	// Adopted are Services that are in force as an agent before has left them: what their
	// objects say now cannot be read.
	Adopted map[lb.ServiceName]bool
	// NoLocal counts the Service ports without an endpoint where the traffic
	// policy wants one, by family.
	NoLocal map[lb.Family]lb.NoLocal
}

// Batch counts the objects of updates.
type Batch struct {
	Updates  int
	Services int
	Slices   int
	Triggers []Trigger
}

// Trigger is when a change of endpoints happened in the cluster.
type Trigger struct {
	Family lb.Family
	At     time.Time
}

// blind observes nothing.
type blind struct{}

func (blind) Flushed(Attempt)       {}
func (blind) Problems([]lb.Problem) {}
func (blind) Force(Force)           {}

// Observe has an observer told what happens from now on. It is for the time before Run.
func (r *Reconciler) Observe(o Observer) { r.observer = o }

// note counts what an update brings.
func (r *Reconciler) note(u lb.Update) {
	r.batch.Updates++
	r.batch.Services += len(u.Services)
	r.batch.Slices += len(u.Slices)
	for _, s := range u.Slices {
		if s != nil && r.tells(s) {
			r.batch.Triggers = append(r.batch.Triggers, Trigger{lb.FamilyOf(s.Endpoints[0].Addr), s.LastChangeTrigger})
		}
	}
}

// tells says whether a slice tells of a change that we can be measured by. One
// from before we began cannot. Nor can one that the slice has told of already:
// it changed since for a reason that has no trigger, and the time in between
// would count as ours.
func (r *Reconciler) tells(s *lb.Slice) bool {
	if len(s.Endpoints) == 0 || !s.LastChangeTrigger.After(r.began) {
		return false
	}
	old := r.state.Slice(s.SliceName)
	return old == nil || !old.LastChangeTrigger.Equal(s.LastChangeTrigger)
}

// countNoLocal notes what a Service adds to the sum.
func (r *Reconciler) countNoLocal(name lb.ServiceName, frontends []lb.Frontend) {
	r.addNoLocal(r.noLocal[name], -1)
	delete(r.noLocal, name)
	if n := lb.CountNoLocal(frontends); len(n) > 0 {
		r.noLocal[name] = n
		r.addNoLocal(n, 1)
	}
}

// addNoLocal adds to the sum (1), or takes from it (-1).
func (r *Reconciler) addNoLocal(byFamily map[lb.Family]lb.NoLocal, times int) {
	for family, n := range byFamily {
		sum := r.noLocalSum[family]
		r.noLocalSum[family] = lb.NoLocal{Internal: sum.Internal + times*n.Internal, External: sum.External + times*n.External}
	}
}

// observedFlush flushes and tells the observer, once there is something whole.
func (r *Reconciler) observedFlush() error {
	if !r.complete() {
		return nil
	}
	a := Attempt{Began: time.Now(), Batch: r.batch}
	a.Err = r.flush()
	a.Ended = time.Now()
	if a.Err == nil {
		a.HealthChecks = r.state.TakeHealthChecks(r.isUnserved)
		a.Adopted = maps.Clone(r.adopted)
		a.NoLocal = maps.Clone(r.noLocalSum)
		r.batch = Batch{}
	}
	r.observer.Flushed(a)
	return a.Err
}

// report tells of everything that is wrong, to the observer and to the log, if that is
// not what it told last.
func (r *Reconciler) report() {
	all := r.allProblems()
	if r.reported && areSame(all, r.wrong) && r.input.MoreProblems == r.wrongBesides {
		return
	}
	r.reported, r.wrong, r.wrongBesides = true, all, r.input.MoreProblems
	problems := lb.BoundedBesides("the input", all, r.input.MoreProblems)
	r.observer.Problems(problems)
	r.problems.Set(problems)
}

// areSame says whether two lists hold the same. Mostly they are one: sources make another only
// when something has changed.
func areSame(a, b []lb.Problem) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// allProblems returns everything that is wrong. Problems of the node come first, so that those of objects never
// take their places.
func (r *Reconciler) allProblems() (problems []lb.Problem) {
	of := func(name lb.ServiceName, p lb.Problem) {
		p.File = r.state.File(name)
		problems = append(problems, p)
	}
	if p, ok := r.ahead.problem(); ok {
		problems = append(problems, p)
	}
	for _, name := range slices.SortedFunc(maps.Keys(r.leftOut), lb.ServiceName.Compare) {
		of(name, r.leftOut[name].problem(name, r.planner.Has(name)))
	}
	for _, c := range append(r.planner.Shortages(), r.planner.Conflicts()...) {
		of(c.Service, c.Problem)
	}
	problems = append(problems, r.state.Problems()...)
	if p, ok := r.cidrProblem.(lb.Problem); ok {
		problems = append(problems, p)
	}
	if len(problems) == 0 {
		return r.input.Problems // which areSame knows by its place
	}
	return append(problems, r.input.Problems...)
}

// Package reconciler is the loop that makes the datapath what the sources say:
// it gathers changes, has them planned, and applies the operations, again if
// they fail. A change costs what it touches; nothing is ever done over for all.
package reconciler

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/tick"
)

// Datapath is what the reconciler needs of the kernel's side.
type Datapath interface {
	// Content returns what the maps hold.
	Content() (plan.Content, error)
	// Reset replaces the maps by empty ones, which come into force with Attach.
	Reset() error
	// Sizes returns the room that there is.
	Sizes() plan.Sizes
	// Reserve makes room for at least the given sizes.
	Reserve(plan.Sizes) error
	// Apply does operations in order and returns how many it has done.
	Apply([]plan.Op) (int, error)
	// Grace waits until no program that runs now runs any more. It may be called while
	// another call is under way.
	Grace() error
	// Attach puts the programs in force if they are not. The error is errors.ErrUnsupported
	// where the kernel refuses them.
	Attach() error
	// SetDevices attaches to these devices and no others, after Attach.
	SetDevices([]plan.Device) error
	// DestroySockets tells sockets that talk to lost backends: to these or, if none are
	// given, to any. It may be called while another call is under way.
	DestroySockets([]plan.Loss) error
}

// Reconciler keeps a datapath in line with what sources say.
type Reconciler struct {
	log   *zap.Logger
	inbox *Inbox

	observer Observer
	probers  []Prober
	settled  bool // probers have said how packets get to backends
	dp       Datapath
	limits   plan.Sizes
	state    *lb.State
	planner  *plan.Planner

	// Everything below belongs to Run.
	input      lb.Update // the newest problems, what is frozen and partial; nothing else
	gotUpdate  bool
	gotAddress bool
	ready      chan struct{}

	triedDevices chan struct{}
	sayTried     sync.Once

	adopted map[lb.ServiceName]bool // in force since before, not set yet
	waiting map[lb.ServiceName]bool // changed, but frozen or refused
	pending pending
	leftOut leftOut
	peers   *peers // newest, nil as long as none came

	plannedAnew  time.Duration // for how long it was planned anew since Services were tried again
	restsUntil   time.Time     // none is tried again before
	sweepRefused time.Duration // how long a sweep waits since the last one failed
	pieces       pieces
	problems     *ProblemLog
	wrong        []lb.Problem // as reported last
	reported     bool         // that was ever
	// wrongBesides counts the problems that were not in the list.
	wrongBesides int

	beside        beside
	heard         []question // that are answered, but not in the kernel yet
	due           due
	lost          []plan.Loss // sockets are to be told of these
	telling       bool        // they are just now, or a moment ago
	toldAll       bool        // what an earlier agent may have left
	cannotDestroy bool
	outOfUse      outOfUse
	sources       sources
	recounted     time.Time // when connections in flight were counted last
	recounting    bool      // they are just now
	takingTraffic bool      // see takeTraffic
	sweeping      bool      // a sweep is due, or its grace period passes
	gracing       bool      // that passes just now
	putOff        putOff
	ahead         ahead
	graceFailed   bool

	began          time.Time // changes that happened before say nothing of our pace
	cidrProblem    error
	batch          Batch                                       // what has come since the last success
	noLocal        map[lb.ServiceName]map[lb.Family]lb.NoLocal // never an empty one
	noLocalSum     map[lb.Family]lb.NoLocal                    // of all Services
	attached       []plan.Device                               // what programs are to be attached to
	devicesChanged bool
	deviceError    error // of some of these, nil for none
}

// New returns a reconciler that goes on from what the datapath holds.
func New(log *zap.Logger, inbox *Inbox, dp Datapath, limits plan.Sizes) (*Reconciler, error) {
	r := &Reconciler{
		log: log, inbox: inbox, observer: blind{}, noLocal: map[lb.ServiceName]map[lb.Family]lb.NoLocal{}, noLocalSum: map[lb.Family]lb.NoLocal{}, began: time.Now(), dp: dp, limits: limits, state: lb.NewState(),
		ready: make(chan struct{}),

		triedDevices: make(chan struct{}),
		adopted:      map[lb.ServiceName]bool{}, waiting: map[lb.ServiceName]bool{}, leftOut: leftOut{},
		problems: NewProblemLog(log), beside: beside{ended: make(chan func() bool, atOnce)},
	}
	if err := r.adopt(); err != nil {
		return nil, err
	}
	for _, name := range r.planner.Services() {
		r.adopted[name] = true
	}
	r.state.Apply(lb.Update{ServiceCIDRs: r.planner.ServiceCIDRs()}) // until we hear of others
	return r, nil
}

// adopt makes a planner of what the maps hold, or of empty maps where that
// contradicts itself.
func (r *Reconciler) adopt() error {
	content, err := r.dp.Content()
	if err == nil {
		r.planner, err = plan.Adopt(content, r.limits)
	}
	if err != nil {
		r.log.Warn("pinned maps are inconsistent: replacing them; connections through them will be reset", zap.Error(err))
		r.planner = plan.New(r.limits)
		return r.dp.Reset()
	}
	return nil
}

// Balance says how Services are balanced that leave it open, and by which key flows are
// hashed. It is for the time before Run.
func (r *Reconciler) Balance(defaults lb.Policy, key maglev.Key) {
	r.planner.SetDefaults(defaults)
	r.planner.SetHashKey(key)
}

// ExternalIPs says what the operator has decided about them. It is for the time
// before Run.
func (r *Reconciler) ExternalIPs(e lb.ExternalIPs) { r.state.SetExternalIPs(e) }

// Servers says how to learn at which addresses and ports the node listens: a Service gets
// none of them, unless it has it from before. It is for the time before Run.
func (r *Reconciler) Servers(list func() (map[lb.AddrPort]bool, error)) {
	r.state.SetServers(list, func(name lb.ServiceName, at lb.AddrPort) bool { return r.planner.HasAt(name, at) })
}

// Ready is closed once everything that the sources said at first is in force.
func (r *Reconciler) Ready() <-chan struct{} { return r.ready }

// TriedDevices is closed once it was tried to attach to the devices that were found at first.
func (r *Reconciler) TriedDevices() <-chan struct{} { return r.triedDevices }

// Run reconciles until the context ends and what it began is done, and then returns nil. What
// the kernel refuses it returns while nothing was in force yet: later on what is in force stays.
func (r *Reconciler) Run(ctx context.Context) error {
	r.due = newDue()
	defer r.due.stop()
	defer r.end()
	defer r.sayInForce(errEnds)
	for ctx.Err() == nil {
		if !r.await(ctx) {
			continue
		}
		if err := r.bring(); err != nil {
			return err
		}
		r.report() // no change waits for that
	}
	return nil
}

// await waits for what comes next and does it. It says whether that may have changed what is
// planned.
func (r *Reconciler) await(ctx context.Context) (changed bool) {
	select {
	case <-ctx.Done():
		return false
	case <-r.inbox.wake:
		r.gather()
	case <-r.due.retry.C:
		r.due.retryLater()
	case <-r.due.drained.C:
		r.planWaiting()
	case <-r.due.leftOut.C:
		r.tryLeftOut()
	case then := <-r.beside.ended:
		return r.beside.finish(then)
	case <-r.due.tell.C:
		r.tellNext()
		return false
	case <-r.due.sweep.C:
		r.beginSweep()
		return false
	case <-r.due.gone.C:
		r.freeSources()
		return false
	case <-r.due.look.C:
		r.due.look.Reset(tick.Next(lookEvery))
		r.look(time.Now())
		return false
	case <-r.due.stand.C:
		r.due.stand.Reset(tick.Next(standEvery))
		r.noteStanding()
		return false
	case v := <-r.inbox.verdicts:
		r.judge(v)
		return false
	case q := <-r.inbox.questions:
		return r.hear(q)
	}
	return true
}

// bring brings what is planned into the kernel, and later what cannot be brought now. It
// returns what the kernel refuses while nothing was in force yet.
func (r *Reconciler) bring() error {
	if at, ok := r.planner.NextDrained(); ok {
		r.due.drained.Reset(time.Until(at))
	}
	err := r.observedFlush()
	r.sayInForce(err)
	if err != nil {
		if errors.Is(err, errors.ErrUnsupported) && !r.isReady() {
			return err
		}
		r.log.Error("apply changes, will try again", zap.Duration("after", r.due.wait), zap.Int("operations", len(r.pending.ops)), zap.Error(err))
		r.due.tryAgain()
		return nil
	}
	r.tryLater()
	r.sweepSoon()
	r.growAhead(time.Now())
	if err := r.attachDevices(); err != nil {
		r.log.Error("attach to devices, will try again", zap.Duration("after", r.due.wait), zap.Error(err))
		r.due.tryAgain()
		return nil
	}
	r.due.succeeded()
	return nil
}

// gather plans everything that is in the inbox.
func (r *Reconciler) gather() {
	n := r.inbox.take()
	if n.devices != nil {
		r.attached, r.devicesChanged = n.devices, true
	}
	dirty := map[lb.ServiceName]bool{}
	for _, u := range n.updates {
		r.note(u)
		r.setServiceCIDRs(u)
		maps.Copy(dirty, r.state.Take(u))
		for name := range u.Services {
			r.leftOut.end(name)
		}
		r.input = lb.Update{Problems: u.Problems, MoreProblems: u.MoreProblems, Frozen: u.Frozen, FrozenEndpoints: u.FrozenEndpoints, Partial: u.Partial}
		r.gotUpdate = true
	}
	if n.addresses != nil {
		r.pending.add(owner{}, r.planner.SetNodeAddresses(n.addresses))
		r.sources.addresses = local(n.addresses)
		for _, name := range r.state.SetLocal(r.sources.addresses) {
			dirty[name] = true
		}
		r.gotAddress = true
	}
	if n.addresses != nil || n.devices != nil {
		r.noteSources()
	}
	if n.peers != nil {
		r.peers = n.peers
		r.setPeers()
	}
	if r.gotUpdate {
		for name := range r.adopted { // gone, unless the state knows it
			dirty[name] = true
		}
	}
	maps.Copy(r.waiting, dirty)
	r.planWaiting()
	r.settle()
}

// complete says whether there is a whole first picture to bring in.
func (r *Reconciler) complete() bool { return r.gotUpdate && r.gotAddress }

// flush brings what is planned into the kernel.
func (r *Reconciler) flush() error {
	if err := r.write(); err != nil {
		return err
	}
	if err := r.dp.Attach(); err != nil {
		return err
	}
	r.sayReady()
	r.lost = append(r.lost, r.planner.TakeLosses()...)
	r.tellSockets()
	return nil
}

// write makes room for what is planned, and writes it to the maps. A Service whose operation fails, or for which there is
// no room, is left out, and all others go on.
func (r *Reconciler) write() error {
	for times := 0; ; {
		err := r.tryWrite()
		if err == nil {
			return nil
		}
		if times == leftOutAtOnce {
			r.due.wait = firstRetry // there was progress
			return err
		}
		planner := r.planner
		if err = r.resume(err); err != nil {
			return err
		}
		if r.planner != planner {
			times++
		}
	}
}

// tryWrite writes until something fails.
func (r *Reconciler) tryWrite() error {
	if err := r.reserve(); err != nil {
		return err
	}
	swept := r.pending.sweeps()
	done, err := r.dp.Apply(r.pending.ops)
	r.pending.drop(done)
	if swept && !r.pending.sweeps() {
		r.sweepRefused = 0
	}
	if err != nil {
		return err
	}
	r.pending = pending{}
	r.leftOut.succeeded()
	return nil
}

// attachDevices attaches to the devices that came last. A device that refuses
// is tried again, and a kernel that cannot is told of once; Services, and what is
// said of our health, do not depend on it.
func (r *Reconciler) attachDevices() error {
	if !r.devicesChanged || !r.complete() {
		return nil
	}
	err := r.dp.SetDevices(r.attached)
	r.sayTried.Do(func() { close(r.triedDevices) })
	r.deviceError = err
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err != nil {
		r.log.Warn("packets from outside the node are not balanced", zap.Error(err))
	}
	r.devicesChanged = false
	return nil
}

func (r *Reconciler) sayReady() {
	if !r.isReady() && !r.leftOut.isTransient() {
		r.log.Info("ready", zap.Int("services", len(r.planner.Services())))
		close(r.ready)
		r.planner.SetLinger(lingerFor)
		r.pieces = pieces{}
	}
}

func (r *Reconciler) isReady() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

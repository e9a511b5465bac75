// Package reconciler is the loop that makes the datapath what the sources say:
// it gathers changes, has them planned, and applies the operations, again if
// they fail. A change costs what it touches; nothing is ever done over for all.
package reconciler

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
	"github.com/headgate/headgate/pkg/plan"
)

// Datapath is what the reconciler needs of the kernel's side.
type Datapath interface {
	// Content returns what the maps hold.
	Content() (plan.Content, error)
	// Reset replaces the maps by empty ones, which come into force with Attach.
	Reset() error
	// Reserve makes room for at least the given sizes.
	Reserve(plan.Sizes) error
	// Apply does operations in order and returns how many it has done.
	Apply([]plan.Op) (int, error)
	// Grace waits until no program that runs now runs any more. It alone may be
	// called while another call is under way.
	Grace() error
	// Attach puts the programs in force if they are not. The error is errors.ErrUnsupported
	// where the kernel refuses them.
	Attach() error
	// SetDevices attaches to these devices and no others, after Attach.
	SetDevices([]plan.Device) error
	// DestroySockets tells sockets that talk to lost backends.
	DestroySockets([]plan.Loss) error
}

// How long things wait.
const (
	standEvery   = time.Second      // connections of backends with failures are looked for
	lookEvery    = 2 * time.Second  // it is looked whether programs are in force
	recountEvery = 30 * time.Second // connections in flight are counted anew
	sweepAfter   = time.Second      // from when something retires until its grace period begins
	firstRetry   = 100 * time.Millisecond
	lastRetry    = 30 * time.Second
)

// Reconciler keeps a datapath in line with what sources say.
type Reconciler struct {
	log   *zap.Logger
	inbox *Inbox

	observer Observer
	prober   Prober
	dp       Datapath
	limits   plan.Sizes
	state    *lb.State
	planner  *plan.Planner

	// Everything below belongs to Run.
	input      lb.Update // the newest problems, what is frozen and partial
	gotUpdate  bool
	gotAddress bool
	ready      chan struct{}
	adopted    map[lb.ServiceName]bool // in force since before, not set yet
	waiting    map[lb.ServiceName]bool // changed, but frozen or refused
	pending    []plan.Op
	problems   *ProblemLog

	recounted     time.Time // when that was
	cannotDestroy bool
	graceFailed   bool

	began          time.Time // changes that happened before say nothing of our pace
	cidrProblem    error
	batch          Batch                                       // what has come since the last success
	noLocal        map[lb.ServiceName]map[lb.Family]lb.NoLocal // never an empty one
	attached       []plan.Device                               // what programs are to be attached to
	devicesChanged bool
	deviceError    error // of some of these, nil for none
}

// New returns a reconciler that goes on from what the datapath holds.
func New(log *zap.Logger, inbox *Inbox, dp Datapath, limits plan.Sizes) (*Reconciler, error) {
	r := &Reconciler{
		log: log, inbox: inbox, observer: blind{}, noLocal: map[lb.ServiceName]map[lb.Family]lb.NoLocal{}, began: time.Now(), recounted: time.Now(), dp: dp, limits: limits, state: lb.NewState(),
		prober: unasked{}, ready: make(chan struct{}),
		adopted: map[lb.ServiceName]bool{}, waiting: map[lb.ServiceName]bool{},
		problems: NewProblemLog(log),
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

// Ready is closed once everything that the sources said at first is in force.
func (r *Reconciler) Ready() <-chan struct{} { return r.ready }

// Run reconciles until the context ends, and then returns nil. What the kernel refuses it returns
// while nothing was in force yet: later on what is in force stays.
func (r *Reconciler) Run(ctx context.Context) error {
	sweep, retry, drained := newTimer(), newTimer(), newTimer()
	defer drained.Stop()
	defer sweep.Stop()
	defer retry.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	stand := time.NewTicker(standEvery)
	defer stand.Stop()
	wait, sweeping, passed := firstRetry, false, make(chan grace, 1)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.inbox.wake:
			r.gather()
		case <-retry.C:
			wait = min(2*wait, lastRetry)
		case <-sweep.C:
			if sweeping = len(r.pending) == 0; sweeping { // else what is gone may still be named
				go r.waitGrace(r.planner.Mark(), passed)
			}
			continue
		case g := <-passed:
			sweeping = false
			r.sweep(g)
		case now := <-look.C:
			r.look(now)
			continue
		case <-stand.C:
			r.noteStanding()
			continue
		case v := <-r.inbox.verdicts:
			r.judge(v)
			continue
		case <-drained.C:
			r.planWaiting()
			r.report()
		}
		if at, ok := r.planner.NextDrained(); ok {
			drained.Reset(time.Until(at))
		}
		if err := r.observedFlush(); err != nil {
			if errors.Is(err, errors.ErrUnsupported) && !r.isReady() {
				return err
			}
			r.log.Error("apply changes, will try again", zap.Duration("after", wait), zap.Int("operations", len(r.pending)), zap.Error(err))
			retry.Reset(wait)
			continue
		}
		// A sweep that is due stays due: were it put off by every change,
		// maps would grow for as long as there are changes.
		if r.planner.Retired() > 0 && !sweeping {
			sweep.Reset(sweepAfter)
			sweeping = true
		}
		if err := r.attachDevices(); err != nil {
			r.log.Error("attach to devices, will try again", zap.Duration("after", wait), zap.Error(err))
			retry.Reset(wait)
			continue
		}
		retry.Stop()
		wait = firstRetry
	}
}

// newTimer returns a timer that is not running.
func newTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
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
		for _, name := range r.state.Apply(u) {
			dirty[name] = true
		}
		r.input = lb.Update{Problems: u.Problems, Frozen: u.Frozen, FrozenEndpoints: u.FrozenEndpoints, Partial: u.Partial}
		r.gotUpdate = true
	}
	if n.addresses != nil {
		r.pending = append(r.pending, r.planner.SetNodeAddresses(n.addresses)...)
		for _, name := range r.state.SetLocal(local(n.addresses)) {
			dirty[name] = true
		}
		r.gotAddress = true
	}
	if r.gotUpdate {
		for name := range r.adopted { // gone, unless the state knows it
			dirty[name] = true
		}
	}
	maps.Copy(r.waiting, dirty)
	r.planWaiting()
	r.report()
}

// complete says whether there is a whole first picture to bring in.
func (r *Reconciler) complete() bool { return r.gotUpdate && r.gotAddress }

// flush brings what is planned into the kernel.
func (r *Reconciler) flush() error {
	if err := r.dp.Reserve(r.planner.Needs()); err != nil {
		return err
	}
	done, err := r.dp.Apply(r.pending)
	r.pending = r.pending[done:]
	if err != nil {
		return err
	}
	r.pending = nil
	if err := r.dp.Attach(); err != nil {
		return err
	}
	r.sayReady()
	r.destroySockets()
	return nil
}

// setServiceCIDRs plans the prefixes that belong to Services, if the update
// says which.
func (r *Reconciler) setServiceCIDRs(u lb.Update) {
	if u.ServiceCIDRs == nil {
		return
	}
	ops, err := r.planner.SetServiceCIDRs(u.ServiceCIDRs)
	r.cidrProblem = err
	r.pending = append(r.pending, ops...)
}

// attachDevices attaches to the devices that came last. A device that refuses
// is tried again, and a kernel that cannot is told of once; Services, and what is
// said of our health, do not depend on it.
func (r *Reconciler) attachDevices() error {
	if !r.devicesChanged || !r.complete() {
		return nil
	}
	err := r.dp.SetDevices(r.attached)
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

// destroySockets tells clients of backends that are gone. It comes after the
// maps are right, so that who connects again reaches another backend.
func (r *Reconciler) destroySockets() {
	losses := r.planner.TakeLosses()
	if len(losses) == 0 || r.cannotDestroy {
		return
	}
	if err := r.dp.DestroySockets(losses); err != nil {
		r.cannotDestroy = errors.Is(err, errors.ErrUnsupported)
		r.log.Warn("close sockets of removed backends", zap.Error(err))
	}
}

func (r *Reconciler) sayReady() {
	if !r.isReady() {
		r.log.Info("ready", zap.Int("services", len(r.planner.Services())))
		close(r.ready)
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

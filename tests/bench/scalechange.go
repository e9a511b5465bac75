package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// follower is a frontend of which endpoints are changed, one change at a time.
type follower struct {
	addr netip.Addr
	word uint64 // of the view that internal clients get, as last seen
	next func(i int) *discoveryv1.EndpointSlice

	event *event    // on its way to the map, nil for none
	due   time.Time // if it had to wait for the one before it
}

// followers returns Services of a cluster at random, of each of which the last endpoint is
// another one with each change.
func (c shape) followers() (all []*follower) {
	const most = 2000
	rng := rand.New(rand.NewPCG(7, 8))
	for _, i := range rng.Perm(c.services)[:min(most, c.services)] {
		all = append(all, &follower{addr: nth(serviceNet4, i+256), next: func(change int) *discoveryv1.EndpointSlice {
			es := c.slice(i, change%c.slices)
			es.Endpoints[c.endpoints-1].Addresses = []string{changedEndpoint(change).String()}
			return es
		}})
	}
	return all
}

// course is changes one after the other.
type course struct {
	name, key string
	count     int
	rate      int               // in a second; 0: each waits for the one before it
	also      func(i int) error // what is done besides with each change, nil for nothing
	run       func() error      // makes them otherwise, nil for all of the above
}

// driver makes changes and sees them come to the map.
type driver struct {
	*scaled
	agent *scaledAgent
	view  *frontendView
	made  int             // changes in all courses, so that no two are the same
	took  []time.Duration // of one course

	renewed time.Time // the view
}

// pause is between two looks at the map.
const pause = 20 * time.Microsecond

// changesOf measures changes of the endpoints of a cluster.
func (s *scaled) changesOf(c shape, a *scaledAgent, t *scaleTables) error {
	runtime.LockOSThread() // nanosleep is of the thread, and finer than timers
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // of this process
	view, err := openFrontends(a.group.root)
	if err != nil {
		return err
	}
	r := &driver{scaled: s, agent: a, view: view}
	defer r.view.close()
	all := c.followers()
	seconds := int(s.plan.steady.Seconds())
	for _, k := range []course{
		{name: "one at a time", key: "one", count: s.plan.changes},
		{name: "100 a second", key: "at100", count: 100 * seconds / 3, rate: 100},
		{name: "1,000 a second", key: "at1000", count: 1000 * seconds, rate: 1000},
	} {
		if err := r.row(c, k, all, &t.changes); err != nil {
			return err
		}
	}
	if c != s.plan.clusters[0] {
		return nil
	}
	return errors.Join(r.behindLosses(c, all, &t.changes), r.following(c, all, &t.changes), r.rolling(c, &t.changes), r.replaced(c, &t.changes), r.growing(c, all, &t.changes))
}

// row measures a course and adds a line.
func (r *driver) row(c shape, k course, all []*follower, t *table) error {
	if err := r.step("%s endpoints: %s", c, k.name); err != nil {
		return err
	}
	run := k.run
	if run == nil {
		run = func() error { return r.run(k, all) }
	}
	from := time.Now()
	cpu, err := spends(r.agent.Process, run)
	if err != nil {
		return err
	}
	key, share, each := c.key()+k.key+"/", cpu/time.Since(from).Seconds()*100, cpu/float64(k.count)*1e6
	r.report.value(key+"cpu", "%", share)
	r.report.value(key+"cpu_each", "µs", each)
	t.row(append(r.spread(c, k), tenth(share), us(each))...)
	return nil
}

// spread notes how long the changes of a course took, and returns the cells of its line.
func (r *driver) spread(c shape, k course) []string {
	slices.Sort(r.took)
	cells := []string{c.String(), k.name + ", " + count(k.count)}
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"worst", 1}} {
		v := r.took[min(int(p.share*float64(len(r.took))), len(r.took)-1)].Seconds() * 1e6
		r.report.value(c.key()+k.key+"/"+p.name, "µs", v)
		cells = append(cells, us(v))
	}
	return cells
}

// run makes the changes of a course, and notes how long each took to the map. One whose
// frontend waits for an earlier change counts from when it was due.
func (r *driver) run(k course, all []*follower) error {
	if err := errors.Join(r.view.renew(), r.view.find(all)); err != nil {
		return err
	}
	r.took = make([]time.Duration, 0, k.count)
	var waiting []*follower
	began, last := time.Now(), time.Now()
	for made := 0; len(r.took) < k.count; nap(pause) {
		now, due := time.Now(), began
		if k.rate > 0 {
			due = began.Add(time.Duration(made) * time.Second / time.Duration(k.rate))
		}
		f := all[made%len(all)]
		if made < k.count && !now.Before(due) && f.event == nil && (k.rate > 0 || len(waiting) == 0) {
			if err := r.send(f, due, k.rate > 0 && now.Sub(due) > time.Millisecond); err != nil {
				return err
			}
			if k.also != nil {
				if err := k.also(made); err != nil {
					return err
				}
			}
			waiting, made = append(waiting, f), made+1
		}
		before := len(waiting)
		if waiting = r.arrived(waiting); len(waiting) < before || before == 0 {
			last = now
		}
		if err := r.late(now.Sub(last)); err != nil {
			return err
		}
	}
	return nil
}

// send makes the next change of a frontend.
func (r *driver) send(f *follower, due time.Time, late bool) (err error) {
	if f.due = (time.Time{}); late {
		f.due = due
	}
	r.made++
	f.event, err = r.api.slices.change(watch.Modified, f.next(r.made))
	return err
}

// arrived notes which changes have come to the map, and returns the others.
func (r *driver) arrived(waiting []*follower) (others []*follower) {
	return slices.DeleteFunc(waiting, func(f *follower) bool {
		word := r.view.word(f.addr)
		if word == f.word {
			return false
		}
		at := time.Now()
		from := epoch.Add(time.Duration(f.event.sent.Load()))
		if !f.due.IsZero() {
			from = f.due
		}
		r.took = append(r.took, at.Sub(from))
		f.word, f.event = word, nil
		return true
	})
}

// late looks for larger maps where nothing comes any more, and gives up in the end.
func (r *driver) late(by time.Duration) error {
	switch {
	case by > 30*time.Second:
		return fmt.Errorf("a change did not come to the kernel:\n%s", r.agent.Tail())
	case by > 2*time.Millisecond && time.Since(r.renewed) > 10*time.Millisecond: // each takes memory
		if err := r.ctx.Err(); err != nil {
			return err
		}
		r.renewed = time.Now()
		return r.view.renew()
	}
	return nil
}

// nap sleeps on this thread.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it sooner
}

// cpuTime returns the CPU time of a process, in seconds.
func cpuTime(pid int) (float64, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: of all threads, to the nanosecond
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()).Seconds(), nil
}

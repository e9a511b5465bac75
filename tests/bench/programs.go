package main

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A runner is a program with what makes it run.
type runner struct {
	name, key string
	program   *ebpf.Program
	kase      *kase
	ns        []float64 // for each round: mean time of a run
}

// programs measures the run time of programs by the kernel's own count.
func (b *bench) programs() error {
	runners, closeAll, err := b.runners()
	defer closeAll()
	if err != nil {
		return err
	}
	if err := b.countAllRuns(runners); err != nil {
		return err
	}
	t := table{
		Title: "Run time of programs, ns per run by the kernel's statistics",
		Note: "Means of batches, median of rounds. The statistics themselves cost what the empty program shows, and keep the CPU from overlapping " +
			"a program with what is around it: compare the lines with each other.",
		Header: []string{"program", "ns per run", "quartiles", "over empty"},
	}
	for _, r := range runners {
		s, over := summary(r.ns), added(r.ns, runners[0].ns)
		b.report.add("programs/"+r.key, "ns", s)
		t.row(r.name, ns(s), spread(s), ns(over))
	}
	b.report.table(t)
	return nil
}

// countAllRuns runs all programs in turn, for every round.
func (b *bench) countAllRuns(runners []*runner) error {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("switch on statistics of programs: %w", err)
	}
	defer stats.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := b.step("%d programs", len(runners)); err != nil {
		return err
	}
	for range b.plan.rounds {
		for _, r := range runners {
			if err := b.ctx.Err(); err != nil {
				return err
			}
			if err := b.countRuns(r); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	return nil
}

// countRuns runs a program for a batch and notes its mean time.
func (b *bench) countRuns(r *runner) error {
	before, err := r.program.Stats()
	if err != nil {
		return err
	}
	if err := b.batch(r.kase); err != nil {
		return err
	}
	after, err := r.program.Stats()
	if err != nil {
		return err
	}
	runs := after.RunCount - before.RunCount
	if runs == 0 {
		return errors.New("the program did not run")
	}
	r.ns = append(r.ns, float64(after.Runtime-before.Runtime)/float64(runs))
	return nil
}

// runners returns the programs, the empty one first, and what closes the
// sockets that make them run.
func (b *bench) runners() ([]*runner, func(), error) {
	w := &wiring{b: b}
	most := b.most()
	empty, err := b.empty()
	w.check(err)
	one, err := b.product(udp4, 1, 10)
	w.check(err)
	one6, err := b.product(udp6, 1, 10)
	w.check(err)
	large, err := b.product(udp4, 1, 1000)
	w.check(err)
	many, err := b.product(udp4, most, 10)
	w.check(err)
	many6, err := b.product(udp6, most, 10)
	w.check(err)
	if w.err != nil {
		return nil, w.close, w.err
	}
	manyText := ", " + count(most) + " Services at random"
	w.connects("empty program", "empty", "connect4", empty, serviceNet4, 1)
	w.connects("connect4, 1 Service", "connect4", "connect4", one, serviceNet4, 1)
	w.connects("connect4, 1 Service with 1,000 backends", "connect4_large", "connect4", large, serviceNet4, 1)
	w.connects("connect4"+manyText, "connect4_many", "connect4", many, serviceNet4, most)
	w.connects("connect4, no Service address", "connect4_foreign", "connect4", many, foreignNet4, 1)
	w.connects("connect6, 1 Service", "connect6", "connect6", one6, serviceNet6, 1)
	w.connects("connect6"+manyText, "connect6_many", "connect6", many6, serviceNet6, most)
	w.exchanges("sendmsg4", one, serviceNet4)
	w.exchanges("recvmsg4", one, serviceNet4)
	w.exchanges("sendmsg6", one6, serviceNet6)
	w.exchanges("recvmsg6", one6, serviceNet6)
	w.releases("sock_release, empty program", "sock_release_empty", empty)
	w.releases("sock_release", "sock_release", one)
	return w.runners, w.close, w.err
}

// wiring gathers runners until the first error.
type wiring struct {
	b       *bench
	runners []*runner
	closers []func()
	err     error
}

func (w *wiring) check(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *wiring) close() {
	for _, c := range w.closers {
		c()
	}
}

// connects makes a program run by connect() to so many Services, or addresses
// that are none.
func (w *wiring) connects(name, key, program string, g *group, first netip.Addr, n int) {
	if w.err != nil {
		return
	}
	t := newTargets(first, n, servicePort)
	w.check(w.b.enter(g))
	fd, err := socket(t.family, unix.SOCK_DGRAM)
	w.check(err)
	w.closers = append(w.closers, func() { closeSocket(fd) })
	w.add(&runner{name: name, key: key, program: g.programs[program], kase: &kase{n: w.b.plan.calls, op: reconnect(fd, t)}})
}

// exchanges makes a program run by datagrams to a Service and back.
func (w *wiring) exchanges(program string, g *group, first netip.Addr) {
	if w.err != nil {
		return
	}
	bare, err := w.b.bare()
	w.check(err)
	e, err := w.b.newExchange(bare, g, newTargets(first, 1, servicePort))
	w.check(err)
	if w.err != nil {
		return
	}
	w.closers = append(w.closers, e.close)
	w.add(&runner{name: program + ", unconnected, 1 Service", key: program, program: g.programs[program], kase: &kase{n: w.b.plan.calls / 2, op: e.call(sendTo)}})
}

// releases makes a program run by the end of connected sockets.
func (w *wiring) releases(name, key string, g *group) {
	t := newTargets(serviceNet4, 1, servicePort)
	w.add(&runner{name: name, key: key, program: g.programs["sock_release"], kase: &kase{group: g, n: w.b.plan.calls / 2, op: life(t, wholeLife)}})
}

func (w *wiring) add(r *runner) { w.runners = append(w.runners, r) }

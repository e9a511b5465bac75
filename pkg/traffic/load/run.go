package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// headStart is how long before its beginning a run is announced to the
// senders, so that none of them is late.
const headStart = 5 * time.Millisecond

// Run sends a load, in this process, and returns what came of it. It calls
// started, unless that is nil, as soon as it is known when counting begins.
// When ctx is cancelled it ends early, waits for the operations under way as it
// always does, and returns what was measured by then: that is no error.
func Run(ctx context.Context, spec Spec, started func(counting time.Time)) (result.Run, error) {
	if err := spec.Validate(); err != nil {
		return result.Run{}, err
	}
	spec = spec.withDefaults()
	if err := enoughDescriptors(spec.Connections); err != nil {
		return result.Run{}, err
	}
	if !spec.Unchecked {
		if err := check(&spec); err != nil {
			return result.Run{}, err
		}
	}
	start := newStarter(&spec, started)
	run, err := map[Kind]func(context.Context, *Spec, *starter) (result.Run, error){
		Bulk: runBulk, Packets: runPackets,
		Connect: runOperations, CRR: runOperations, RR: runOperations, UDP: runOperations, SendTo: runOperations, HTTP: runOperations,
	}[spec.Kind](ctx, &spec, start)
	if err != nil || !spec.Ceiling || ctx.Err() != nil {
		return run, err
	}
	ceiling, err := Ceiling(ctx, spec)
	if err != nil {
		return run, fmt.Errorf("measure the generator's own ceiling: %w", err)
	}
	run.SetCeiling(ceiling)
	return run, nil
}

// enoughDescriptors says whether a process may have that many sockets.
func enoughDescriptors(connections int) error {
	const others = 64
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("look how many files may be open: %w", err)
	}
	if uint64(connections)+others > limit.Cur {
		return fmt.Errorf("%d connections: this process may have %d files open; use fewer, or raise the limit with ulimit -n %d",
			connections, limit.Cur, connections+others)
	}
	return nil
}

// starter lets threads begin together.
type starter struct {
	spec   *Spec
	began  time.Time
	ready  sync.WaitGroup
	begin  int64 // nanoseconds since began, to be read after fired
	fired  chan struct{}
	notify func(counting time.Time)
}

func newStarter(spec *Spec, notify func(time.Time)) *starter {
	s := &starter{spec: spec, began: time.Now(), fired: make(chan struct{}), notify: notify}
	s.ready.Add(spec.Senders)
	return s
}

// counting returns when counting begins.
func (s *starter) counting() time.Time {
	return s.began.Add(time.Duration(s.begin) + s.spec.WarmUp)
}

// await says that a thread is ready, and returns when all are.
func (s *starter) await() (begin int64) {
	s.ready.Done()
	<-s.fired
	return s.begin
}

// fire starts all threads when they are ready.
func (s *starter) fire() {
	s.ready.Wait()
	s.begin = int64(time.Since(s.began) + headStart)
	close(s.fired)
	if s.notify != nil {
		s.notify(s.counting())
	}
}

// part is what one thread does of a load.
type part interface {
	run(ctx context.Context, begin int64) error
	close()
}

// threads runs the parts of a load, each on a thread of its own: they are opened
// there, and begin together.
func (s *starter) threads(ctx context.Context, open func(i int) (part, error)) error {
	errs := make([]error, s.spec.Senders)
	var running sync.WaitGroup
	for i := range errs {
		running.Go(func() {
			errs[i] = onThread(i, !s.spec.Unbound, func() error {
				p, err := open(i)
				defer p.close()
				begin := s.await()
				if err != nil {
					return err
				}
				return p.run(ctx, begin)
			})
		})
	}
	s.fire()
	running.Wait()
	return errors.Join(errs...)
}

func runOperations(ctx context.Context, spec *Spec, start *starter) (result.Run, error) {
	senders := make([]*sender, spec.Senders)
	for i := range senders {
		var err error
		if senders[i], err = newSender(spec, i, start.began); err != nil {
			return result.Run{}, err
		}
	}
	err := start.threads(ctx, func(i int) (part, error) { return senders[i], senders[i].connectAll() })
	if err != nil {
		return result.Run{}, err
	}
	run := newRun(spec, start)
	run.Interrupted = ctx.Err() != nil
	records := make([]*record, len(senders))
	for i, s := range senders {
		records[i] = s.record
		run.CPU += s.cpu.used()
	}
	merge(&run, records)
	return run, nil
}

// newRun is a run without results.
func newRun(spec *Spec, start *starter) result.Run {
	return result.Run{Load: spec.asked(), Interval: spec.Interval, Started: start.counting().Round(0).UTC()}
}

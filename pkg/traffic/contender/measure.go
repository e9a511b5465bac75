package contender

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// Kernel says what only the kernel knows of Headgate, by where it is pinned.
type Kernel interface {
	// CountRuns has runs of all programs counted until what it returns is closed.
	CountRuns() (io.Closer, error)
	// Programs returns what was counted so far.
	Programs(root string) ([]result.Program, error)
	// MapBytes is the memory of all maps.
	MapBytes(root string) (uint64, error)
}

// Run runs a load on the Services, on all of them in turn or on the one in the
// middle, with actions that find $NODE and the rest in their environment.
func (p *Contender) Run(ctx context.Context, spec load.Spec, one bool, actions []load.Action) (result.Run, error) {
	spec.Targets, spec.Outside = targets(p.services, one, p.Spec.Name == Direct), true
	run, err := load.RunWith(ctx, p.metered, spec, actions)
	if err == nil && run.Use != nil {
		run.Use.Memory, err = p.memoryNow()
	}
	if err != nil {
		return run, fmt.Errorf("%s with %d Services: %w", p.Spec.Name, p.Spec.Services, err)
	}
	const few = 4
	if len(run.Load.Targets) > few { // in every run again, and in order of no use
		run.Load.Targets = []string{fmt.Sprintf("%d addresses", len(run.Load.Targets))}
	}
	return run, nil
}

// metered runs a load and notes what the machine did in the counted time. A run
// that ended early has no such note.
func (p *Contender) metered(ctx context.Context, spec load.Spec, started func(time.Time)) (result.Run, error) {
	var meter *meter
	run, err := p.site.Client.Run(ctx, spec, func(counting time.Time) {
		if meter == nil { // what comes after the load is its ceiling
			meter = p.startMeter(counting, spec.Duration)
			started(counting)
		}
	})
	if meter == nil {
		return run, err
	}
	use, metered := meter.stop()
	if err == nil && !run.Interrupted {
		run.Use, err = use, metered
	}
	return run, err
}

// memoryNow is what the load balancer holds.
func (p *Contender) memoryNow() (m result.Memory, err error) {
	m = p.memory
	if p.process != nil {
		if pid := int(p.process.pid.Load()); pid != 0 {
			m.Resident, _ = resident(pid) // it may have ended just now
		}
	}
	if p.bpfRoot != "" && p.Spec.Kernel != nil {
		m.Maps, err = p.Spec.Kernel.MapBytes(p.bpfRoot)
	}
	return m, err
}

// CountPrograms runs a load, without warm-up, and returns what BPF programs of the
// load balancer did in it, nil if it has none.
func (p *Contender) CountPrograms(ctx context.Context, spec load.Spec, one bool) (programs *result.Programs, err error) {
	if p.bpfRoot == "" || p.Spec.Kernel == nil {
		return nil, nil
	}
	counting, err := p.Spec.Kernel.CountRuns()
	if err != nil {
		return nil, err
	}
	defer counting.Close()
	spec.WarmUp, spec.Ceiling, spec.Unchecked = 0, false, true
	before, err := p.Spec.Kernel.Programs(p.bpfRoot)
	if err != nil {
		return nil, err
	}
	run, err := p.Run(ctx, spec, one, nil)
	if err != nil {
		return nil, err
	}
	after, err := p.Spec.Kernel.Programs(p.bpfRoot)
	if err != nil {
		return nil, err
	}
	return difference(before, after, run.Operations()), nil
}

// difference is what programs did between two looks, in which there were so many
// operations.
func difference(before, after []result.Program, operations float64) *result.Programs {
	sum := &result.Programs{Operations: uint64(operations)}
	earlier := make(map[string]result.Program)
	for _, b := range before {
		earlier[b.Name] = b
	}
	for _, a := range after {
		a.Runs -= earlier[a.Name].Runs
		a.Time -= earlier[a.Name].Time
		if a.Runs == 0 {
			continue
		}
		sum.Runs += a.Runs
		sum.Time += a.Time
		sum.Each = append(sum.Each, a)
	}
	return sum
}

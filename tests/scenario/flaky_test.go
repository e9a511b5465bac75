package scenario

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
)

// memory is a datapath without a kernel.
type memory struct{ plan.Model }

func (m *memory) Content() (plan.Content, error) { return m.Model.Content(), nil }
func (m *memory) Reset() error                   { m.Model = plan.Model{}; return nil }
func (m *memory) Sizes() plan.Sizes {
	const any = math.MaxUint32
	return plan.Sizes{Frontends: any, Slots: any, Backends: any, Services: any, Addresses: any}
}
func (m *memory) Reserve(plan.Sizes) error       { return nil }
func (m *memory) Attach() error                  { return nil }
func (m *memory) SetDevices([]plan.Device) error { return nil }
func (m *memory) Grace() error                   { return nil }

func (m *memory) DestroySockets([]plan.Loss) error {
	return nil
}
func (m *memory) Apply(ops []plan.Op) (int, error) {
	for _, op := range ops {
		m.Model.Apply(op)
	}
	return len(ops), nil
}

// errInjected is what a flaky datapath fails with of its own accord.
var errInjected = errors.New("injected")

// mostRefused is how many operations fail in one step of a script: else a Service of thousands would never be in force.
const mostRefused = 8

// flaky is a datapath that fails every now and then, the same in every run of a
// script. It notes what is done, and looks at the maps after every operation.
type flaky struct {
	reconciler.Datapath
	mu      sync.Mutex // simulated time orders, but does not synchronize
	chance  *rand.Rand
	ops     []string // done since done was last called
	crash   int      // operations until nothing works any more, -1 for never
	refused int      // operations since failAgain was last called
	losses  []string // told since toldLosses was last called
	broken  error    // how the maps contradicted themselves first
}

func newFlaky(name string) *flaky {
	seed := fnv.New64a()
	seed.Write([]byte(name))
	return &flaky{chance: rand.New(rand.NewPCG(seed.Sum64(), 0)), crash: -1}
}

// fails decides whether the next step fails: one in eight, as long as not all
// do.
func (f *flaky) fails() bool { return f.crash == 0 || f.chance.IntN(8) == 0 }

func (f *flaky) Content() (plan.Content, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Datapath.Content()
}

func (f *flaky) Reserve(sizes plan.Sizes) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails() {
		return fmt.Errorf("reserve: %w", errInjected)
	}
	return f.Datapath.Reserve(sizes)
}

func (f *flaky) Attach() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails() {
		return fmt.Errorf("attach: %w", errInjected)
	}
	return f.Datapath.Attach()
}

// Grace notes a grace period as if it were an operation.
func (f *flaky) Grace() error {
	f.mu.Lock()
	f.ops = append(f.ops, plan.Grace{}.String())
	f.mu.Unlock()
	return f.Datapath.Grace()
}

func (f *flaky) Apply(ops []plan.Op) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, op := range ops {
		if f.crash == 0 || f.refused < mostRefused && f.fails() {
			f.refused++
			return i, &plan.OpError{Op: op, Err: errInjected}
		}
		if _, err := f.Datapath.Apply([]plan.Op{op}); err != nil {
			return i, err
		}
		if f.crash > 0 {
			f.crash--
		}
		f.ops = append(f.ops, op.String())
		f.look(op)
	}
	return len(ops), nil
}

func (f *flaky) DestroySockets(losses []plan.Loss) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range losses {
		f.losses = append(f.losses, fmt.Sprintf("%s by %s", l.Backend, l.Frontend))
	}
	return f.Datapath.DestroySockets(losses)
}

// toldLosses returns the losses told since it was last asked, sorted.
func (f *flaky) toldLosses() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	losses := f.losses
	f.losses = nil
	slices.Sort(losses)
	return losses
}

// done returns the operations done since it was last asked.
func (f *flaky) done() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ops := f.ops
	f.ops = nil
	return ops
}

// progress counts the operations done since done was last called.
func (f *flaky) progress() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ops)
}

// crashAfter lets nothing work any more after n operations; -1 ends that.
func (f *flaky) crashAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crash = n
}

// failAgain begins a step of a script.
func (f *flaky) failAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = 0
}

// state says whether there was a crash, and how the maps were unsafe, if ever.
func (f *flaky) state() (crashed bool, unsafe error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crash >= 0, f.broken
}

// look checks that every intermediate state is safe.
func (f *flaky) look(after plan.Op) {
	content, err := f.Datapath.Content()
	if err == nil {
		err = content.Check()
	}
	if err != nil && f.broken == nil {
		f.broken = fmt.Errorf("after %q: %w", after, err)
	}
}

package migrate

import (
	"context"
	"fmt"
	"time"
)

// Options say how a way is gone.
type Options struct {
	// DryRun only says what would be done.
	DryRun bool
	// Wait is how long others may take for what is theirs to do, in all.
	Wait time.Duration
	// LeaveSockets goes on though there are datagram sockets that nobody would move.
	LeaveSockets bool
	// EndConnections gives up those that the kernel still translates.
	EndConnections bool
	// KeepConnections is for how long it is kept translating these at most, 0 for as long as
	// there are any.
	KeepConnections time.Duration
	// Say is told of each step when something of it changes.
	Say func(Progress)
}

// State says how far a step is.
type State string

// The states of a step.
const (
	Done   State = "done"
	Waits  State = "waits"   // for others: Todo says what they have to do
	Acts   State = "acts"    // with a dry run: what would be done
	Failed State = "failed"  // and is tried again
	Later  State = "not yet" // steps before it are not done
)

// Progress is how far a step is.
type Progress struct {
	Step  string `json:"step"`
	State State  `json:"state"`
	Found string `json:"found"`
	Todo  string `json:"todo,omitempty"` // of each that is not done
}

const (
	// lookEvery is how long it takes at least until the node is looked at again.
	lookEvery = 250 * time.Millisecond
	// restPerLook is how long that takes at least in times of a look: what is waited for, such
	// as a kube-proxy that starts, needs the processor.
	restPerLook = 4
)

// Forth leads a node from kube-proxy to Headgate, and Back the other way. They return how far
// each step is in the end; not all are done if others did not do their part in time. What
// was done before is not done again, and what came back is.
func Forth(ctx context.Context, cfg Config, o Options) ([]Progress, error) {
	return (&way{Config: cfg, Options: o, steps: forth, look: Look}).lead(ctx)
}

// Back is like Forth.
func Back(ctx context.Context, cfg Config, o Options) ([]Progress, error) {
	return (&way{Config: cfg, Options: o, steps: back, look: lookBack}).lead(ctx)
}

// Finished says whether all steps are done.
func Finished(steps []Progress) bool {
	_, is := Unfinished(steps)
	return !is
}

// Unfinished returns the first step that is not done, and false where all are.
func Unfinished(steps []Progress) (Progress, bool) {
	for _, s := range steps {
		if s.State != Done {
			return s, true
		}
	}
	return Progress{}, false
}

// way is steps that a node is led through.
type way struct {
	Config
	Options
	steps []step
	look  func(context.Context, Config) (Status, error) // Look, or what a test shows
	said  map[string]Progress
}

func (w *way) say(p Progress) {
	if w.said[p.Step] != p && w.Say != nil {
		w.Say(p)
	}
	w.said[p.Step] = p
}

func (w *way) lead(ctx context.Context) ([]Progress, error) {
	w.said = map[string]Progress{}
	own := len(w.steps) // what is ours to do is not waited for; a thing that has to be done over and over is
	for end := time.Now().Add(w.Wait); ; {
		began := time.Now()
		s, err := w.look(ctx, w.Config)
		if err != nil {
			return nil, err
		}
		rest := max(lookEvery, restPerLook*time.Since(began))
		now, acted := w.round(ctx, s)
		if w.DryRun || Finished(now) {
			return now, nil
		}
		if own--; acted && own > 0 {
			continue // look at once whether it is done
		}
		if time.Now().After(end) {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-time.After(rest):
		}
	}
}

// round does the first thing that is ours to do on a node, and says how far each step is.
func (w *way) round(ctx context.Context, s Status) (all []Progress, acted bool) {
	halted := false
	for _, one := range w.steps {
		done, found := one.done(s, w.Options)
		p := Progress{Step: one.name, State: Done, Found: found}
		switch {
		case done && !halted:
			w.say(p)
		case done:
			// It is said once those before it are done.
		case halted && !w.DryRun:
			p.State, p.Todo = Later, one.todo
		case one.act == nil || one.may != nil && !one.may(s, w.Options):
			p.State, p.Todo, halted = Waits, one.todo, true
			w.say(p)
		case w.DryRun:
			p.State, p.Todo = Acts, one.todo
		default:
			p, halted = one.do(ctx, w.Config, p), true
			acted = p.State != Failed
			w.say(p)
		}
		all = append(all, p)
	}
	return all, acted
}

// do does a step, and says what became of it: whether it is done is seen in the next round.
func (s step) do(ctx context.Context, cfg Config, p Progress) Progress {
	did, err := s.act(ctx, cfg)
	if err != nil {
		return Progress{Step: p.Step, State: Failed, Found: err.Error(), Todo: s.todo}
	}
	return Progress{Step: p.Step, State: Acts, Found: fmt.Sprintf("%s: %s", p.Found, did)}
}

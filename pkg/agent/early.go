package agent

import (
	"context"

	"github.com/headgate/headgate/pkg/lb"
)

// early is a source that has begun before anybody takes what it says: on a start,
// receiving everything takes about as long as loading programs does.
type early struct {
	updates chan lb.Update
	ended   chan struct{} // closed when the source has ended
	err     error         // why, to be read after that
}

// begin runs a source until the context ends. What it says waits.
func begin(ctx context.Context, s source) *early {
	e := &early{updates: make(chan lb.Update), ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		e.err = s.Run(ctx, func(u lb.Update) {
			select {
			case e.updates <- u:
			case <-ctx.Done():
			}
		})
	}()
	return e
}

// Run implements source. It ends with the source that has begun, or before it with
// its own context.
func (e *early) Run(ctx context.Context, update func(lb.Update)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case u := <-e.updates:
			update(u)
		case <-e.ended:
			return e.err
		}
	}
}

// silent is a source that says nothing.
type silent struct{}

// Run implements source.
func (silent) Run(context.Context, func(lb.Update)) error { return nil }

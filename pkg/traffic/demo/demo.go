// Package demo shows Headgate at work on one machine: a small network in
// namespaces, the agent on the manifests of examples/, traffic, and an endpoint
// that is taken away and put back.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// Run tells the story on a screen: headgate is the program that runs as agent
// and cleanup, worker a command that runs loads (see load.Serve). With
// hold, the demo waits for a line from it before the end.
func Run(ctx context.Context, headgate string, worker func() *exec.Cmd, out io.Writer, hold io.Reader) error {
	d := &demo{headgate: headgate, worker: worker, size: fullDemo, screen: newScreen(out), hold: hold}
	return d.run(ctx)
}

// size is how much traffic a demo sends.
type size struct {
	load  time.Duration // of each load on one address
	turns int           // of connect() measurements of each kind
	turn  time.Duration // of each of them
	rate  int           // connections a second while endpoints change
	// calm is how long traffic flows before, between and after the changes,
	// and how long a backend must see no connection to count as gone: so
	// long that it would see many otherwise.
	calm time.Duration
}

var fullDemo = size{
	load: 500 * time.Millisecond, turns: 10, turn: 25 * time.Millisecond, rate: 600, calm: time.Second,
}

// demo is one run. Its methods are the steps of the story.
type demo struct {
	headgate string           // the program that runs as agent and cleanup
	worker   func() *exec.Cmd // what runs the loads of a client
	size     size
	hold     io.Reader // a line from it ends the pause before the end, nil means no pause
	screen   *screen

	stage stage
	wrong []string // expectations that were not met
}

// run tells the story and cleans up, whatever happens.
func (d *demo) run(ctx context.Context) (err error) {
	// SIGPIPE too, as in "demo | head": the default would end us on the
	// spot, with everything left behind.
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGPIPE)
	defer stop()
	if os.Geteuid() != 0 {
		return errors.New("the demo makes network namespaces and loads BPF programs: run it as root (sudo make demo)")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.stage.failed = cancel
	defer func() {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // what follows from it is of no interest
		}
		if err = errors.Join(err, d.stage.close()); err == nil {
			d.screen.line("Everything was as expected, and everything is removed again.")
		}
	}()
	return d.tell(ctx)
}

func (d *demo) tell(ctx context.Context) error {
	steps := []func(context.Context) error{
		d.makeNetwork, d.startAgent,
		d.sendTCP, d.sendUDP, d.sendNodePort, d.showAnswers,
		d.measureConnect,
		d.changeEndpoints,
		d.holdOn, d.stopAgent,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if len(d.wrong) > 0 {
		return fmt.Errorf("%d of the demo's expectations are not met, the first: %s", len(d.wrong), d.wrong[0])
	}
	return nil
}

// expect notes what should be and is not, and goes on: the rest of the story
// says more about the reason.
func (d *demo) expect(ok bool, format string, args ...any) {
	if !ok {
		d.wrong = append(d.wrong, fmt.Sprintf(format, args...))
	}
}

// step shows a step while it runs and how it went. What it returns is shown
// behind its title.
func (d *demo) step(title string, do func(progress func(string)) (string, error)) error {
	before := len(d.wrong)
	end := d.screen.begin(title)
	detail, err := do(d.screen.progress)
	end(err == nil && len(d.wrong) == before, detail)
	for _, wrong := range d.wrong[before:] {
		d.screen.line("    expected: " + wrong)
	}
	return err
}

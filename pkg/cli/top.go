package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/command"
)

// top is a command that shows traffic as it goes.
type top struct {
	env      *env
	of       listing
	interval time.Duration
	once     bool
	reader   trafficReader
	noun     *grammar
}

// The shortest interval: reading takes time, too.
const leastInterval = 100 * time.Millisecond

func newTop(e *env) *cobra.Command {
	t := &top{env: e}
	t.noun = t.reader.noun()
	cmd := &cobra.Command{
		Use:   "top [" + services.words + "]",
		Short: "Show the traffic of Services as it goes, on the whole screen",
		Long: `Shows the Service ports of this node, those with the most new connections first: connections a second, in
flight, refused a second with the reasons, the share of new connections that stay in the zone of this
node, and how many backends are ready, ejected and draining (or terminating). Above them stands the sum; a
backend of several Services counts once there, and in each of theirs. IN FLIGHT ≤7 is at most 7: other
Service ports have some of the backends. "Not taken" are connections that
backends refused or did not answer. A wide screen has columns of bytes in a second, failures and connect
times, too.

A letter sorts by a column, and by the same in the other order; / shows only what has a text in its name,
Enter the backends of a Service, Esc goes back, q ends. Arrows, Page Up and Page Down move.

State, zone and Pod of backends an agent says, where one answers at --state-dir. The zone of this node is
known by a backend that runs here. --once waits for one interval and prints what went on meanwhile, for
scripts and without a terminal.`,
		Args: atMostOne, ValidArgsFunction: services.untyped().complete(e),
		RunE: func(cmd *cobra.Command, args []string) error { return t.run(cmd, args) },
	}
	t.of.addNamespace(cmd, true)
	cmd.Flags().BoolVar(&t.once, "once", false, "print one interval and end; with -o json for programs")
	cmd.Flags().Var(atLeast(&t.interval, time.Second, leastInterval), "interval", "time from one look to the next, over which rates are")
	cmd.Flags().StringVar(&t.of.sortBy, "sort-by", "conn/s", "title of the column to sort by: numbers begin with the largest")
	command.CompleteFlag(cmd, "sort-by", t.noun.titles())
	return cmd
}

func (t *top) run(cmd *cobra.Command, args []string) error {
	if _, err := t.noun.order(t.of.sortBy); err != nil {
		return err
	}
	by := slices.IndexFunc(t.noun.columns, func(c column[item]) bool { return sortName(c.title) == sortName(t.of.sortBy) })
	limitGarbage(garbage)
	s := newSight(t.env, &t.of, args)
	s.rates = &rates{}
	defer s.Close()
	if t.once {
		return t.printOnce(cmd, s, by)
	}
	if t.env.ForPrograms() {
		return errors.New("top shows a screen: write --once for -o and --json")
	}
	items, err := t.noun.collect(s) // what is wrong is said before the screen is taken
	if err != nil {
		return err
	}
	screen, err := openTerminal(os.Stdin, os.Stdout)
	if errors.Is(err, errNoTerminal) {
		return errors.New("top needs a terminal to read keys from and to draw on: write --once to print one interval, or ssh -t, or kubectl exec -it")
	}
	if err != nil {
		return err
	}
	defer screen.restore()
	v := newTopView(t.noun, by, t.interval)
	v.saw(t.reader.look, items)
	return t.live(cmd.Context(), screen, v, s)
}

// printOnce prints what went on in one interval.
func (t *top) printOnce(cmd *cobra.Command, s *sight, by int) error {
	t.reader.once = true
	if _, err := t.noun.collect(s); err != nil {
		return err
	}
	select {
	case <-cmd.Context().Done():
		return nil
	case <-time.After(t.interval):
	}
	items, err := t.noun.collect(s)
	if err != nil {
		return err
	}
	items = sorted(items, t.noun.columns[by], false)
	if !t.env.ForPrograms() && len(items) != 1 {
		items = append(items, t.reader.look.total(items))
	}
	return t.env.Print(cmd.OutOrStdout(), t.noun.table(t.env.Output, inTurn(items)))
}

// looked is what a look at the maps has come to. A panic goes on where the terminal is restored.
type looked struct {
	items    []item
	look     *trafficLook
	err      error
	panicked any
}

// live shows what comes until a person ends it, or the context or the terminal do.
func (t *top) live(ctx context.Context, screen *terminal, v *topView, s *sight) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looks := make(chan looked)
	go t.lookAgain(ctx, s, looks)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)
	for {
		if err := draw(screen, v); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case got := <-signals:
			if got != unix.SIGWINCH {
				return nil
			}
		case k, ok := <-screen.keys:
			if !ok || v.press(k) {
				return nil
			}
			if k == keySuspend {
				if err := screen.suspend(); err != nil {
					return err
				}
			}
		case got := <-looks:
			switch {
			case got.panicked != nil:
				panic(got.panicked)
			case got.err != nil:
				v.failure = got.err.Error()
			default:
				v.saw(got.look, got.items)
			}
		}
	}
}

// draw shows the view as it is now, on a terminal as large as it is now.
func draw(screen *terminal, v *topView) error {
	width, height, err := screen.size()
	if err != nil {
		return fmt.Errorf("ask for the size of the terminal: %w", err)
	}
	if width != v.width || height != v.height {
		v.width, v.height = width, height
		v.arrange()
	}
	_, err = screen.out.WriteString(ansi(v.frame(), width))
	return err
}

// lookAgain looks at the maps again and again. That a Service is gone is no error any more.
func (t *top) lookAgain(ctx context.Context, s *sight, to chan<- looked) {
	defer func() {
		if p := recover(); p != nil {
			to <- looked{panicked: fmt.Sprintf("%v\n%s", p, debug.Stack())}
		}
	}()
	again := time.NewTicker(t.interval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		items, err := t.noun.collectAny(s)
		select {
		case <-ctx.Done():
			return
		case to <- looked{items: items, look: t.reader.look, err: err}:
		}
	}
}

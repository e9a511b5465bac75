package cli

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/command"
)

// watchEvery is how often it is looked whether something has changed.
const watchEvery = time.Second

// endsAfter gives a command that goes on until it is interrupted the flag --for: its context ends then.
func endsAfter(cmd *cobra.Command) {
	var lasts time.Duration
	cmd.Flags().DurationVar(&lasts, "for", 0, "end after so long, such as 10s (default: when interrupted)")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if lasts > 0 {
			ctx, cancel := context.WithTimeout(cmd.Context(), lasts)
			defer cancel()
			cmd.SetContext(ctx)
		}
		return run(cmd, args)
	}
}

// change is something that came, changed or went, as programs read it.
type change struct {
	Type   changeType `json:"type"`
	Object item       `json:"object"`
}

// changeType says what has happened, in the words of Kubernetes' watches.
type changeType string

const (
	added    changeType = "ADDED"
	modified changeType = "MODIFIED"
	deleted  changeType = "DELETED"
)

// follow prints all items, and then what changes, until the context ends.
func (n *grammar) follow(ctx context.Context, e *env, out io.Writer, read func() ([]item, error)) error {
	f := newFollower(n, e, out)
	again := time.NewTicker(watchEvery)
	defer again.Stop()
	for {
		items, err := read()
		if err != nil {
			return err
		}
		if err := f.tell(items); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// follower knows what was printed last.
type follower struct {
	noun   *grammar
	shown  *grammar // with rates
	env    *env
	out    io.Writer
	before map[string]item
	lines  command.Lines
}

func newFollower(n *grammar, e *env, out io.Writer) *follower {
	return &follower{noun: n, shown: n.inMotion(), env: e, out: out, before: map[string]item{}, lines: command.LinesTo(out)}
}

// tell prints what is new.
func (f *follower) tell(items []item) error {
	if f.lines.Empty() && !f.env.ForPrograms() {
		if err := f.lines.Write(f.out, f.shown.header(f.env.IsWide())); err != nil {
			return err
		}
	}
	now := make(map[string]item, len(items))
	for _, one := range items {
		name := one.names()[0]
		now[name] = one
		what := modified
		if was, ok := f.before[name]; !ok {
			what = added
		} else if f.isSame(was, one) {
			continue
		}
		if err := f.print(what, one); err != nil {
			return err
		}
	}
	for name, was := range f.before {
		if _, stays := now[name]; !stays {
			if err := f.print(deleted, was); err != nil {
				return err
			}
		}
	}
	f.before = now
	return nil
}

// isSame says whether who reads would see no difference but in rates.
func (f *follower) isSame(a, b item) bool {
	wide := f.env.IsWide() || f.env.ForPrograms()
	return slices.EqualFunc(f.noun.rows(a, wide), f.noun.rows(b, wide), slices.Equal[[]string])
}

func (f *follower) print(what changeType, one item) error {
	if f.env.ForPrograms() {
		return f.env.Print(f.out, command.Table{Value: change{what, one}, Names: []string{f.noun.name + "/" + one.names()[0]}})
	}
	for _, row := range f.shown.rows(one, f.env.IsWide()) {
		if what == deleted {
			row = append(row, "gone")
		}
		if err := f.lines.Write(f.out, row); err != nil {
			return err
		}
	}
	return nil
}

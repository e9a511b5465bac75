package migrate

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// fake is a way of three steps: the second is others', unless it is said to be done.
type fake struct {
	done  map[string]bool
	acted []string
	fails bool
	said  []string
}

func (f *fake) steps() []step {
	is := func(name string) func(Status, Options) (bool, string) {
		return func(Status, Options) (bool, string) { return f.done[name], name }
	}
	act := func(name string) func(context.Context, Config) (string, error) {
		return func(context.Context, Config) (string, error) {
			f.acted = append(f.acted, name)
			if f.fails {
				return "", errors.New("no right")
			}
			f.done[name] = true
			return "did it", nil
		}
	}
	return []step{
		{name: "ours", done: is("ours"), act: act("ours"), todo: "do it"},
		{name: "theirs", done: is("theirs"), todo: "wait for them"},
		{name: "last", done: is("last"), act: act("last"), may: func(_ Status, o Options) bool { return o.EndConnections }, todo: "do that"},
	}
}

// goOn goes the way for as long as nobody else does anything.
func (f *fake) goOn(t *testing.T, o Options) (states string) {
	t.Helper()
	f.acted, f.said = nil, nil
	o.Say = func(p Progress) { f.said = append(f.said, p.Step+" "+string(p.State)) }
	look := func(context.Context, Config) (Status, error) { return Status{}, nil }
	all, err := (&way{Options: o, steps: f.steps(), look: look}).lead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, p := range all {
		words = append(words, string(p.State))
	}
	return strings.Join(words, ", ")
}

func TestAWayGoesOnWhereTheNodeIs(t *testing.T) {
	f := &fake{done: map[string]bool{}}
	want := func(o Options, states, acted, said string) {
		t.Helper()
		if got := f.goOn(t, o); got != states || strings.Join(f.acted, " ") != acted || strings.Join(f.said, ", ") != said {
			t.Errorf("states %q, acted %q, said %q; want %q, %q, %q", got, f.acted, f.said, states, acted, said)
		}
	}
	want(Options{DryRun: true}, "acts, waits, waits", "", "theirs waits, last waits")
	want(Options{}, "done, waits, not yet", "ours", "ours acts, ours done, theirs waits")
	want(Options{}, "done, waits, not yet", "", "ours done, theirs waits") // run again: nothing is done twice
	f.done["theirs"] = true
	want(Options{}, "done, done, waits", "", "ours done, theirs done, last waits")
	want(Options{EndConnections: true}, "done, done, done", "last", "ours done, theirs done, last acts, last done")
	f.done["ours"] = false // it came back
	want(Options{}, "done, done, done", "ours", "ours acts, ours done, theirs done, last done")
	f.done["ours"], f.fails = false, true
	want(Options{}, "failed, done, done", "ours", "ours failed")
}

func TestWhatHasToBeDoneOverAndOverEnds(t *testing.T) {
	times := 0
	again := []step{{name: "again", done: func(Status, Options) (bool, string) { return false, "" }, act: func(context.Context, Config) (string, error) {
		times++
		return "", nil
	}}}
	look := func(context.Context, Config) (Status, error) { return Status{}, nil }
	if all, err := (&way{steps: again, look: look}).lead(t.Context()); err != nil || Finished(all) || times > 2 {
		t.Errorf("it was done %d times (%v, %v), want once or twice", times, all, err)
	}
}

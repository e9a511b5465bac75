package datapath_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// An agent may die when its maps are in their place, and before it says so. The next one
// says it: else packets of lost connections would be dropped for good, and never answered by
// a reset.
func TestMapsThatAreInTheirPlaceHaveAllFlows(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if *d.FlowsMigrated() != 1 {
		t.Error("after a start the maps lack flows")
	}
	*d.FlowsMigrated() = 0
	d.Close()
	if d = mustOpen(t, cfg); *d.FlowsMigrated() != 1 {
		t.Error("after an agent that died the maps lack flows")
	}
}

// Whoever removes an agent's programs may die on the way. An agent that starts then begins
// flows again.
func TestAnAgentThatStartsEndsAHandOver(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if err := d.BeginHandOver(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	d = mustOpen(t, cfg)
	if d.HandsOver() {
		t.Error("flows are handed over still")
	}
	now, err := datapath.Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	if ahead := d.Removed() - time.Duration(now); ahead > 0 {
		t.Errorf("each packet asks for its backend for %v", ahead)
	}
}

// A removal that cannot be done leaves programs in force. They begin flows again.
func TestARemovalThatFailsEndsTheHandOver(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	pin := filepath.Join(cfg.Root, "links", "connect4")
	if err := errors.Join(os.Remove(pin), os.Mkdir(pin, 0o700)); err != nil {
		t.Fatal(err)
	}
	var to successor
	_, err := datapath.Remove(cfg.Root, &to)
	if still := datapath.HandsOverBelow(t, cfg.Root); err == nil || still {
		t.Errorf("with a directory in the place of a link: %v; connections are handed over still: %v", err, still)
	}
	if to.done != 1 {
		t.Errorf("the successor hears %d times that programs stay, want once", to.done)
	}
	if err := os.Remove(pin); err != nil {
		t.Fatal(err)
	}
	if _, err := datapath.Remove(cfg.Root, nil); err != nil {
		t.Error(err)
	}
}

// What a successor has begun it notes below the root: it ends it while the root is there, and
// whoever comes after one that was killed finds it.
func TestASuccessorHearsOfTheEndWhileTheRootIsThere(t *testing.T) {
	cfg := config(t)
	mustOpen(t, cfg).Close()
	to := successor{root: cfg.Root, err: errors.New("not yet")}
	if _, err := datapath.Remove(cfg.Root, &to); !errors.Is(err, to.err) || to.without > 0 {
		t.Errorf("a successor that cannot end: %v, %d times without the root", err, to.without)
	}
	to.err = nil
	if _, err := datapath.Remove(cfg.Root, &to); err != nil || to.without > 0 {
		t.Errorf("the next removal: %v, %d times without the root", err, to.without)
	}
	if _, err := os.Stat(cfg.Root); err == nil {
		t.Error("the root stays")
	}
}

// What a successor cannot forget is no reason to leave all connections: it takes what it can.
func TestASuccessorThatForgetsNothingIsAskedToTakeAllTheSame(t *testing.T) {
	for _, takes := range []bool{true, false} {
		cfg := config(t)
		d := mustOpen(t, cfg)
		if err := d.Attach(); err != nil {
			t.Fatal(err)
		}
		d.AddFlow(t, lb.TCP)
		d.Close()
		to := successor{unforgotten: errors.New("the list is not to be had"), takes: takes}
		done, err := datapath.Remove(cfg.Root, &to)
		if err != nil {
			t.Fatal(err)
		}
		got := done.HandedOver
		if errors.Is(got.Why, errors.ErrUnsupported) {
			t.Skipf("programs cannot ask this kernel: %v", got.Why)
		}
		if takes && (got.Done != 1 || got.Left != 0 || got.Why != nil) {
			t.Errorf("%d are handed over and %d left (%v), want 1, none and no reason", got.Done, got.Left, got.Why)
		}
		if !takes && (got.Left != 1 || !errors.Is(got.Why, to.unforgotten)) {
			t.Errorf("%d are left for %v, want 1 and the reason", got.Left, got.Why)
		}
	}
}

// What both sides have closed is nobody's loss, but its last packets may come to the successor.
func TestConnectionsThatAreOverAreNotLost(t *testing.T) {
	for _, alive := range []int{0, 1} {
		cfg := config(t)
		d := mustOpen(t, cfg)
		if err := d.Attach(); err != nil {
			t.Fatal(err)
		}
		d.AddClosedFlow(t)
		if alive > 0 {
			d.AddFlow(t, lb.TCP)
		}
		d.Close()
		if n, err := datapath.ConnectionsBelow(cfg.Root); err != nil || n != alive+1 {
			t.Errorf("%d connections are to be handed over (%v), want %d", n, err, alive+1)
		}
		done, err := datapath.Remove(cfg.Root, &successor{})
		if err != nil {
			t.Fatal(err)
		}
		if got := done.HandedOver; got.Done != 0 || got.Left != alive || (got.Why != nil) != (alive > 0) {
			t.Errorf("beside %d that go on %d are handed over and %d lost (%v)", alive, got.Done, got.Left, got.Why)
		}
	}
}

// A datagram may be under way when its flow is handed over. The flow translates its answer.
func TestAnswersAreTranslatedAfterAHandOver(t *testing.T) {
	cfg := config(t)
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	d.AddFlow(t, lb.UDP)
	d.Close()
	var flows int
	var err error
	looked := make(chan struct{})
	to := successor{takes: true, taken: func() {
		time.AfterFunc(700*time.Millisecond, func() {
			flows, err = datapath.ConnectionsBelow(cfg.Root)
			close(looked)
		})
	}}
	done, removeErr := datapath.Remove(cfg.Root, &to)
	if removeErr != nil {
		t.Fatal(removeErr)
	}
	if errors.Is(done.HandedOver.Why, errors.ErrUnsupported) {
		t.Skipf("programs cannot ask this kernel: %v", done.HandedOver.Why)
	}
	if <-looked; err != nil || flows != 1 {
		t.Errorf("0.7 s after the hand-over %d flows are there: %v", flows, err)
	}
}

// successor takes all or nothing, and counts what it hears.
type successor struct {
	root          string
	unforgotten   error
	takes         bool
	taken         func() // when it is asked to take; nil for nothing
	err           error  // of its end
	done, without int    // ends that it heard of; those without the root
}

func (s *successor) Forget([]datapath.Connection) error { return s.unforgotten }

func (s *successor) Take(all []datapath.Connection) (left []int, err error) {
	if s.taken != nil {
		s.taken()
	}
	if s.takes {
		return nil, nil
	}
	for i := range all {
		left = append(left, i)
	}
	return left, nil
}

func (s *successor) Done() error {
	s.done++
	if _, err := os.Stat(s.root); s.root != "" && err != nil {
		s.without++
	}
	return s.err
}

package peers

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/plan"
)

var (
	homeAddr    = netip.MustParseAddr("192.0.2.2")
	serviceAddr = netip.MustParseAddr("203.0.113.10")
)

// way is a path with time, and the network on it.
type way struct {
	path
	now     time.Time
	passes  uint32 // bytes of the longest packet that does, 0: none
	returns bool   // answers from the Service's address get here
	asked   int    // questions
}

func newWay(most, known uint32) *way {
	return &way{path: newPath(most, known), now: start, passes: 1500, returns: true}
}

// pass lets time pass, and returns when a condition came true, or the time that passed.
func (w *way) pass(d time.Duration, suspects bool, until func() bool) time.Duration {
	began := w.now
	for w.now.Sub(began) < d {
		w.now = w.now.Add(Tick)
		for _, q := range w.tick(w.now, suspects, uint64(w.now.UnixNano())) {
			w.asked++
			if w.passes > 0 && q.Bytes <= w.passes && (q.Question != plan.EchoOfService || w.returns) {
				w.hasComeBack(1 << q.Question)
			}
		}
		if until != nil && until() {
			break
		}
	}
	return w.now.Sub(began)
}

func (w *way) fails() bool { return w.failure() != "" || w.refusal() != "" }
func (w *way) well() bool  { return !w.fails() }

func TestAPathIsWellOnceAQuestionComesBack(t *testing.T) {
	w := newWay(1500, 0)
	if !w.fails() || strings.Contains(w.failure(), "drops") {
		t.Errorf("before it is %q", w.failure())
	}
	if d := w.pass(time.Minute, false, w.well); d > time.Second || w.mtu != 1500 || w.isProven() {
		t.Errorf("well after %s, with %d bytes; proven: %v without the address of a Service", d, w.mtu, w.isProven())
	}
	w.asked = 0
	if w.pass(time.Minute, false, w.fails); w.fails() || w.asked > 100 {
		t.Errorf("%q, %d questions in a minute", w.failure(), w.asked)
	}
}

func TestAPathThatDropsIsGivenUp(t *testing.T) {
	for _, tc := range []struct {
		name     string
		drop     func(*way)
		suspects bool
		within   time.Duration
	}{
		{"all", func(w *way) { w.passes = 0 }, false, pathCalm + 4*Tick},
		{"all, while clients begin in vain", func(w *way) { w.passes = 0 }, true, 4 * Tick},
		{"what is of use", func(w *way) { w.passes = leastMTU - 1 }, false, pathCalm + 4*Tick},
		{"answers of the Service", func(w *way) { w.returns = false }, false, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWay(1500, 1500)
			w.wants(serviceAddr)
			w.pass(time.Minute, false, nil)
			tc.drop(w)
			if d := w.pass(time.Minute, tc.suspects, w.fails); d > tc.within || w.isProven() {
				t.Errorf("given up after %s, want %s at most; proven: %v", d, tc.within, w.isProven())
			}
			w.passes, w.returns = 1500, true
			if d := w.pass(time.Minute, false, w.well); d > 3*time.Second {
				t.Errorf("well again after %s", d)
			}
		})
	}
}

func TestALostQuestionSaysNothing(t *testing.T) {
	w := newWay(1500, 1500)
	w.wants(serviceAddr)
	for range 50 {
		w.pass(3*time.Second, false, nil)
		w.passes, w.returns = 0, false
		w.pass(2*Tick, true, nil)
		w.passes, w.returns = 1500, true
		if w.fails() || !w.isProven() || w.mtu != 1500 {
			t.Fatalf("%q %q, proven: %v, %d bytes", w.failure(), w.refusal(), w.isProven(), w.mtu)
		}
		w.pass(Tick, false, nil)
	}
}

func TestTheLongestPacketIsFound(t *testing.T) {
	for _, most := range []uint32{1280, 1500, 9000, 1 << 16} {
		for _, passes := range []uint32{1280, 1400, 1450, 1500, 9000} {
			w := newWay(most, 0)
			w.passes = passes
			w.pass(2*time.Second, false, nil)
			if want := min(most, passes); w.mtu > want || w.mtu < want*9/10 || w.fails() {
				t.Errorf("of %d bytes %d get there, and it is said %d, %q", most, passes, w.mtu, w.failure())
			}
			w.passes = leastMTU
			if d := w.pass(time.Minute, false, func() bool { return w.mtu == leastMTU }); d > 5*time.Second {
				t.Errorf("a shorter path is found after %s", d)
			}
			w.passes = most
			if d := w.pass(time.Hour, false, func() bool { return w.mtu == w.most }); d > raiseAfter+3*time.Second {
				t.Errorf("a longer path is found after %s", d)
			}
		}
	}
}

func TestWhatAnEarlierAgentFoundHolds(t *testing.T) {
	if w := newWay(1500, 1400); w.mtu != 1400 || w.fails() {
		t.Errorf("%d bytes, %q", w.mtu, w.failure())
	}
	if w := newWay(1300, 1400); w.mtu != 1300 {
		t.Errorf("%d bytes leave, 1300 are wanted", w.mtu)
	}
}

// The echo of one address of a Service says nothing of another.
func TestAnotherAddressOfAServiceIsAskedAnew(t *testing.T) {
	w := newWay(1500, 1500)
	w.wants(serviceAddr)
	w.pass(Tick, false, nil)
	w.wants(homeAddr)
	if w.back&(1<<plan.EchoOfService) != 0 || w.back == 0 {
		t.Errorf("came back: %b", w.back)
	}
}

// A round has room for its questions, however often the longest packet changes while it is in doubt.
func TestARoundHasRoomForItsQuestions(t *testing.T) {
	w := newWay(9000, 9000)
	for most := range uint32(500) {
		w.limit(9000 - most)
		w.now = w.now.Add(searching)
		for _, q := range w.tick(w.now, true, uint64(most)) {
			if q.Question >= plan.MostEchoes || q.Nonce == 0 {
				t.Fatalf("question %d of nonce %d", q.Question, q.Nonce)
			}
		}
	}
}

func TestWhatCannotBeSentSaysNothing(t *testing.T) {
	w := newWay(1500, 0)
	w.wants(serviceAddr)
	for range 2 * missing {
		w.now = w.now.Add(searching)
		if w.tick(w.now, false, 1) == nil {
			t.Fatal("nothing is asked")
		}
		w.wasNotSent()
	}
	if w.fails() || w.isProven() {
		t.Errorf("%q, proven: %v, though nothing was sent", w.failure(), w.isProven())
	}
}

// A peer of the version before, which answers no echo, stays as it was; so does one that is brought to it.
func TestAPeerThatSaysNothingOfEchoesIsNotAskedForThem(t *testing.T) {
	p := newPeer(plan.Peer{}, 1500)
	give := func(kinds ...kind) {
		for _, k := range kinds {
			p.hasAnswered(start, k, Digest{}, Digest{})
		}
	}
	if give(answer); p.echoes || !p.said().Usable() || p.mtu() != 1500 {
		t.Errorf("of the version before it is %+v", p.said())
	}
	if give(echoes, answer); !p.echoes || !p.said().Usable() {
		t.Errorf("of a version that says both it is %+v", p.said())
	}
	if give(echoes); !p.echoes || !p.said().Usable() {
		t.Errorf("once it is of this version it is %+v", p.said())
	}
	p.path.lost, p.path.mtu = missing, 1400
	if p.said().Usable() || p.said().Carries || p.mtu() != 1400 {
		t.Errorf("while the path drops it is %+v", p.said())
	}
	for range missing + 1 {
		give(answer)
	}
	if !p.said().Usable() || p.mtu() != 1500 {
		t.Errorf("brought to the version before it is %+v", p.said())
	}
	fresh := newPeer(plan.Peer{}, 1500)
	if fresh.hasAnswered(start, echoes, Digest{}, Digest{}); fresh.said().Usable() {
		t.Error("a new peer is usable before anything has come back")
	}
	fresh.hasRefused(start)
	if fresh.path.unknown = false; !fresh.said().Usable() {
		t.Errorf("without an agent it is %+v", fresh.said())
	}
	fresh.path.unreturned = missingReturns
	if v := fresh.said(); v.Usable() || v.Returns || !v.Carries {
		t.Errorf("while answers of the Service are dropped it is %+v", v)
	}
}

// A peer that was brought to an earlier version sends nothing back, and its agent says so by an answer alone.
func TestAPathIsNotBlamedForAPeerThatEchoesNoMore(t *testing.T) {
	p, now := newPeer(plan.Peer{Usable: true, MTU: 1500}, 1500), time.Unix(1, 0)
	p.hasAnswered(now, echoes, Digest{}, Digest{})
	p.hasAnswered(now, answer, Digest{}, Digest{})
	for range missing + 1 {
		p.path.tick(now, false, 1<<16)
		now = now.Add(searching)
	}
	if p.said().Carries {
		t.Error("nothing comes back, and it is said to carry")
	}
	if p.hasAnswered(now, answer, Digest{}, Digest{}); !p.said().Carries {
		t.Errorf("its agent does not say that it echoes, and it does not carry: %s", p.said().Reason)
	}
}

func TestTheAgentIsAskedWhileItsPathIsInDoubt(t *testing.T) {
	p, now := newPeer(plan.Peer{Usable: true, MTU: 1500}, 1500), time.Unix(1, 0)
	p.hasAsked(now)
	p.hasAnswered(now, echoes, Digest{}, Digest{})
	if p.isDue(now) {
		t.Fatal("an agent that has just answered is asked")
	}
	for range 2 {
		p.path.tick(now, false, 1<<16)
		now = now.Add(pathCalm)
	}
	if !p.isDue(now) {
		t.Error("something did not come back, and the agent is not asked")
	}
}

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
	other   bool   // the peer carries otherwise
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
		w.judge(w.now)
		w.ask(suspects)
		if until != nil && until() {
			break
		}
	}
	return w.now.Sub(began)
}

// ask asks what it is time for.
func (w *way) ask(suspects bool) {
	for _, q := range w.next(w.now, suspects, uint64(w.now.UnixNano())) {
		w.asked++
		if w.answers(q) {
			w.hasComeBack(w.echo(q))
		}
	}
}

// answers says whether the peer answers a question, and the echo gets here.
func (w *way) answers(q plan.Echo) bool {
	switch {
	case w.passes == 0 || q.Bytes > w.passes:
		return false
	case q.Question == plan.EchoOfService:
		return w.returns
	default:
		return true
	}
}

// echo is what comes back of a question.
func (w *way) echo(q plan.Echo) plan.Echoes {
	return plan.Echoes{Questions: 1 << q.Question, Unlike: w.other}
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
		{"nothing, to a peer that carries otherwise", func(w *way) { w.other = true }, false, pathCalm + Tick},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWay(1500, 1500)
			w.wants(serviceAddr)
			w.pass(time.Minute, false, nil)
			tc.drop(w)
			if d := w.pass(time.Minute, tc.suspects, w.fails); d > tc.within || w.isProven() {
				t.Errorf("given up after %s, want %s at most; proven: %v", d, tc.within, w.isProven())
			}
			w.passes, w.returns, w.other = 1500, true, false
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
		w.judge(w.now)
		for _, q := range w.next(w.now, true, uint64(most)) {
			if q.Question >= plan.MostEchoes || q.Nonce == 0 {
				t.Fatalf("question %d of nonce %d", q.Question, q.Nonce)
			}
		}
	}
}

func TestWhatCannotBeSentSaysNothing(t *testing.T) {
	w := newWay(1500, 1400)
	w.wants(serviceAddr)
	for range 2 * missing {
		w.now = w.now.Add(pathCalm)
		if w.judge(w.now); w.next(w.now, false, 1) == nil {
			t.Fatal("nothing is asked")
		}
		w.wasNotSent()
	}
	if w.fails() || w.mtu != 1400 {
		t.Errorf("%q, %d bytes, though nothing was sent", w.failure(), w.mtu)
	}
}

// A peer that carries otherwise is no silent one, however short the packets are that get there; one
// that comes again as another version is not taken for alike meanwhile.
func TestAPeerThatCarriesOtherwiseIsKnownForIt(t *testing.T) {
	for _, known := range []uint32{0, 1500} {
		for _, passes := range []uint32{1500, 1400, leastMTU, leastMTU - 1} {
			w := newWay(1500, known)
			w.other, w.passes = true, passes
			if w.pass(time.Minute, false, nil); !w.differs || w.isSilent() || !strings.Contains(w.failure(), "--hash-key-file") {
				t.Errorf("known to take %d, takes %d: %q, silent: %v", known, passes, w.failure(), w.isSilent())
			}
		}
	}
	w := newWay(1500, 1500)
	w.pass(time.Minute, false, nil)
	w.passes = 0
	if w.pass(time.Minute, false, nil); !w.isSilent() || w.differs {
		t.Errorf("gone: %q, differs: %v", w.failure(), w.differs)
	}
	w.passes, w.other = 1500, true
	if d := w.pass(time.Minute, false, w.well); w.well() || w.isSilent() {
		t.Errorf("back as another version it is well after %s; silent: %v", d, w.isSilent())
	}
	w.passes = 0
	if w.pass(time.Minute, false, nil); !w.isSilent() || !w.differs {
		t.Errorf("gone after that: %q, differs: %v", w.failure(), w.differs)
	}
	w.passes, w.other = 1500, false
	if d := w.pass(time.Minute, false, w.well); d > 2*time.Second || w.differs {
		t.Errorf("back as this version it is well after %s; differs: %v", d, w.differs)
	}
}

// Nothing is carried to a new peer before it has shown that it carries alike.
func TestANewPeerIsNotTakenForAlike(t *testing.T) {
	w := newWay(1500, 0)
	w.other = true
	if w.pass(time.Minute, false, w.well); w.well() {
		t.Errorf("well after %s", w.now.Sub(start))
	}
}

// What a round says of how a peer carries is of that round alone.
func TestAnEchoOfARoundSaysNothingOfAnother(t *testing.T) {
	p := newPath(1500, 1500)
	p.next(start, false, 1)
	p.hasComeBack(plan.Echoes{Questions: 1 << 2, Unlike: true})
	p.hasComeBack(plan.Echoes{Questions: 1 | 1<<2})
	if p.judge(start); !p.differs {
		t.Error("a peer that has changed its version within a round carries alike")
	}
	p.next(start.Add(searching), false, 2)
	p.hasComeBack(plan.Echoes{Questions: 1 | 1<<2})
	if p.judge(start); p.differs {
		t.Error("a peer that carries alike since differs")
	}
	for i, other := range []bool{true, false} { // rounds of one nonce, while the length is in doubt
		p.next(start.Add(time.Duration(i+1)*time.Hour), true, 3)
		p.hasComeBack(plan.Echoes{Questions: 1, Unlike: other})
		if p.judge(start); p.differs != other || !p.isInDoubt() {
			t.Errorf("in doubt: %v; differs: %v, want %v", p.isInDoubt(), p.differs, other)
		}
	}
}

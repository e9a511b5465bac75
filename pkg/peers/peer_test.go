package peers

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/plan"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a peer with time and counters.
type world struct {
	*peer
	now     time.Time
	counts  Counts
	asked   int
	answers bool
	refuses bool
	echoes  bool // the peer does, and answers come from the address of a Service
	theirs  Digest
	perTick Counts // what clients send in a tick
}

func newWorld(usable bool) *world {
	return &world{peer: newPeer(plan.Peer{Usable: usable}, 1500), now: start, answers: true}
}

// pass lets time pass, and returns when a condition came true, or the time that passed.
func (w *world) pass(d time.Duration, until func() bool) time.Duration {
	began := w.now
	for w.now.Sub(began) < d {
		w.now = w.now.Add(Tick)
		w.counts.SYN += w.perTick.SYN
		w.counts.TCP += w.perTick.TCP
		w.counts.Networks = w.perTick.Networks
		if w.echoes {
			w.comeBack()
		}
		if w.tick(w.now, w.counts) {
			w.asked++
			w.hasAsked(w.now)
			switch {
			case w.refuses:
				w.hasRefused(w.now)
			case w.answers:
				w.hasAnswered(w.now, map[bool]kind{false: answer, true: echoes}[w.echoes], w.theirs, Digest{})
			}
		}
		if until != nil && until() {
			break
		}
	}
	return w.now.Sub(began)
}

// comeBack has a round of questions come back, from the address of a Service, too.
func (w *world) comeBack() {
	for _, q := range w.path.tick(w.now, w.suspects, 1) {
		w.path.hasComeBack(1 << q.Question)
	}
}

func (w *world) usable() bool { return w.said().Usable() }
func (w *world) lost() bool   { return !w.usable() }

func TestAPeerIsUsableOnceItAnswers(t *testing.T) {
	w := newWorld(false)
	if w.usable() {
		t.Error("it is usable before")
	}
	if d := w.pass(time.Minute, w.usable); d > time.Second {
		t.Errorf("usable after %s, want at once", d)
	}
}

func TestADeadHomeIsNoticed(t *testing.T) {
	for _, tc := range []struct {
		name    string
		clients Counts
		within  time.Duration
	}{
		{"while clients begin connections", Counts{SYN: 3}, 1500 * time.Millisecond},
		{"while nothing is sent", Counts{}, calm + 4*Tick},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(false)
			w.pass(time.Minute, nil)
			w.answers, w.perTick = false, tc.clients
			if d := w.pass(time.Minute, w.lost); d > tc.within {
				t.Errorf("lost after %s, want %s at most", d, tc.within)
			}
			if w.said().Reason == "" || !w.said().Silent {
				t.Errorf("silent: %v, reason: %q", w.said().Silent, w.said().Reason)
			}
			w.answers, w.perTick = true, Counts{}
			if d := w.pass(time.Minute, w.usable); d > 2*time.Second {
				t.Errorf("usable again after %s", d)
			}
			if w.pass(Tick, nil); w.said().Silent {
				t.Error("it answers, and is silent")
			}
		})
	}
}

func TestAHealthyPeerIsAskedSeldom(t *testing.T) {
	w := newWorld(false)
	w.perTick = Counts{SYN: 2, TCP: 10}
	w.pass(time.Minute, nil)
	if w.asked > 13 {
		t.Errorf("asked %d times in a minute, want every %s", w.asked, calm)
	}
	if w.lost() {
		t.Error("it is not usable")
	}
}

// The datapath of a node carries on while its agent is replaced.
func TestANodeWithoutAgentStaysUsableForAWhile(t *testing.T) {
	w := newWorld(true)
	w.refuses = true
	if d := w.pass(deadAgent-time.Minute, w.lost); w.lost() {
		t.Errorf("lost after %s: %s", d, w.said().Reason)
	}
	if d := w.pass(2*time.Minute, w.lost); !w.lost() {
		t.Errorf("still usable after %s more", d)
	}
	other := newWorld(false) // that never carried
	other.refuses = true
	if other.pass(time.Minute, other.usable); other.usable() || !strings.Contains(other.said().Reason, "no agent") {
		t.Errorf("a node that never carried is usable: %v, %q", other.usable(), other.said().Reason)
	}
}

// A node that goes down ends its agent first.
func TestANodeThatDiesAfterItsAgentIsNoticed(t *testing.T) {
	for _, clients := range []Counts{{}, {SYN: 1}} {
		w := newWorld(true)
		w.pass(time.Minute, nil)
		w.refuses, w.perTick = true, clients
		if w.pass(5*time.Second, w.lost); w.lost() {
			t.Fatalf("lost without its agent: %s", w.said().Reason)
		}
		w.refuses, w.answers, w.perTick = false, false, Counts{}
		if d := w.pass(time.Minute, w.lost); d > deadNode+2*time.Second {
			t.Errorf("clients %+v: lost after %s, want %s", clients, d, deadNode)
		}
	}
}

// The kernel of a node says once a second at most that nobody listens, however often it is asked.
func TestANodeThatSeldomRefusesStaysUsable(t *testing.T) {
	w := newWorld(true)
	for i := range 600 {
		w.now = w.now.Add(Tick)
		w.counts.SYN++ // which has it asked with each tick
		if i%27 == 0 {
			w.counts.TCP++
		}
		if !w.tick(w.now, w.counts) {
			continue
		}
		if w.hasAsked(w.now); w.now.Sub(w.lives) >= time.Second {
			w.hasRefused(w.now)
		}
		if w.lost() {
			t.Fatalf("lost after %s: %s", w.now.Sub(start), w.said().Reason)
		}
	}
}

func TestAnotherKeyIsNamed(t *testing.T) {
	w := newWorld(true)
	w.theirs = Digest{1}
	w.pass(time.Minute, w.lost)
	if w.usable() || !strings.Contains(w.said().Reason, "key") {
		t.Errorf("usable %v, %q, want the key named", w.usable(), w.said().Reason)
	}
}

// Clients whose SYN-ACKs are dropped begin connections and do nothing else.
func TestAPeerWhoseAnswersAreDroppedIsFoundByWhatClientsSend(t *testing.T) {
	w := newWorld(true)
	w.perTick = Counts{SYN: 1}
	if d := w.pass(time.Minute, w.lost); d < silentFor || d > silentFor+time.Second {
		t.Errorf("lost after %s, want %s", d, silentFor)
	}
	if v := w.said(); v.Returns || !v.Carries || !strings.Contains(v.Reason, "no answers") {
		t.Errorf("verdict %+v, want that clients get no answers", v)
	}
	w.perTick = Counts{}
	if d := w.pass(time.Hour, w.usable); d < returnAfter-time.Second || d > returnAfter+time.Second {
		t.Errorf("tried again after %s, want %s", d, returnAfter)
	}
	w.perTick = Counts{SYN: 1}
	w.pass(time.Minute, w.lost)
	w.perTick = Counts{}
	if d := w.pass(2*time.Hour, w.usable); d < 2*returnAfter-time.Minute {
		t.Errorf("tried again after %s, want twice as long as before", d)
	}
	w.perTick = Counts{SYN: 1, TCP: 1}
	if w.pass(time.Hour, w.lost); w.lost() {
		t.Errorf("lost with answers: %s", w.said().Reason)
	}
}

// Who sends SYNs and completes none has nobody take answers for dropped that echoes say come through, unless
// they are many, and of clients of several networks.
func TestSilenceHasToOutweighEchoes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		echoed  bool // before
		echoes  bool
		service netip.Addr // from which answers are to come
		syns    Counts
		lost    bool
	}{
		{"20 without echoes", false, false, serviceAddr, Counts{SYN: 20, Networks: 1}, true},
		{"19 without echoes", false, false, serviceAddr, Counts{SYN: 19, Networks: 1}, false},
		{"20 of a peer that echoes no more", true, false, serviceAddr, Counts{SYN: 20, Networks: 1}, true},
		{"20 with echoes, none from a Service", true, true, netip.Addr{}, Counts{SYN: 20, Networks: 1}, true},
		{"20 with echoes", true, true, serviceAddr, Counts{SYN: 20, Networks: 1}, false},
		{"199 of 64 networks", true, true, serviceAddr, Counts{SYN: 199, Networks: 64}, false},
		{"200 of 2 networks", true, true, serviceAddr, Counts{SYN: 200, Networks: 2}, false},
		{"200 of 3 networks", true, true, serviceAddr, Counts{SYN: 200, Networks: 3}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(true)
			w.echoes = tc.echoed
			w.path.wants(tc.service)
			w.pass(time.Minute, nil)
			w.echoes = tc.echoes
			w.pass(time.Minute, nil)
			for _, wait := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute} {
				w.counts.SYN += tc.syns.SYN
				w.perTick.Networks = tc.syns.Networks
				if d := w.pass(2*silentFor, w.lost); w.lost() != tc.lost || d < silentFor {
					t.Fatalf("after %s lost: %v, want %v after %s: %s", d, w.lost(), tc.lost, silentFor, w.said().Reason)
				}
				if !tc.lost {
					return
				}
				if d := w.pass(time.Hour, w.usable); d < wait-time.Second || d > wait+time.Second {
					t.Errorf("tried again after %s, want %s", d, wait)
				}
			}
		})
	}
}

// Silence counts from the last packet within a connection, and so do the times of waiting.
func TestAConnectionThatGoesOnEndsSilence(t *testing.T) {
	for _, echoes := range []bool{false, true} {
		w := newWorld(true)
		w.echoes = echoes
		w.path.wants(serviceAddr)
		w.pass(time.Minute, nil)
		for range 5 {
			w.perTick = Counts{SYN: provenSYNs - 1, Networks: provenNetworks}
			w.pass(Tick, nil)
			w.perTick = Counts{TCP: 1}
			w.pass(Tick, nil)
			w.perTick = Counts{}
			if w.pass(2*silentFor, w.lost); w.lost() {
				t.Fatalf("lost after a packet within a connection: %s", w.said().Reason)
			}
			w.perTick = Counts{SYN: provenSYNs, Networks: provenNetworks}
			w.pass(time.Minute, w.lost)
			w.perTick = Counts{}
			if d := w.pass(time.Hour, w.usable); d < returnAfter-time.Second || d > returnAfter+time.Second {
				t.Errorf("tried again after %s, want %s", d, returnAfter)
			}
		}
	}
}

// A few clients that give up are no sign of anything.
func TestFewConnectionsSayNothingOfAnswers(t *testing.T) {
	w := newWorld(true)
	for range 200 {
		w.counts.SYN += silentSYNs - 1
		w.pass(30*time.Second, nil)
		w.counts.TCP++
		w.pass(30*time.Second, nil)
		if w.lost() {
			t.Fatalf("lost: %s", w.said().Reason)
		}
	}
}

// Whatever happens: who answers, and whose clients are answered, is usable within moments, and who
// is not usable has a reason.
func TestAnyHistoryEndsWell(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(rng.IntN(2) == 0)
		for range 20 {
			w.answers, w.refuses, w.theirs = rng.IntN(2) == 0, rng.IntN(4) == 0, Digest{byte(rng.IntN(4) / 3)}
			w.perTick = Counts{SYN: uint64(rng.IntN(3)), TCP: uint64(rng.IntN(2))}
			if rng.IntN(8) == 0 {
				w.counts = Counts{} // maps are new
			}
			w.pass(time.Duration(rng.IntN(20))*time.Second, nil)
			if v := w.said(); !v.Usable() && v.Reason == "" {
				t.Fatalf("seed %d: not usable without a reason", seed)
			}
		}
		w.answers, w.refuses, w.theirs, w.perTick = true, false, Digest{}, Counts{SYN: 1, TCP: 5}
		w.pass(calm+time.Second, nil)
		if !w.verdict.Carries {
			t.Fatalf("seed %d: who answers does not carry: %s", seed, w.said().Reason)
		}
		if w.pass(returnMost, w.usable); w.lost() {
			t.Fatalf("seed %d: not usable after a day: %s", seed, w.said().Reason)
		}
	}
}

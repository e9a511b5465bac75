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

// world is a peer with time, counters, and the network to it.
type world struct {
	*peer
	way     *way
	now     time.Time
	counts  Counts
	rounds  int
	perTick Counts // what clients send in a tick
}

func newWorld(usable bool) *world {
	p := newPeer(plan.Peer{Usable: usable}, 1500)
	return &world{peer: p, way: &way{passes: 1500, returns: true}, now: start}
}

// pass lets time pass, and returns when a condition came true, or the time that passed.
func (w *world) pass(d time.Duration, until func() bool) time.Duration {
	began := w.now
	for w.now.Sub(began) < d {
		w.now = w.now.Add(Tick)
		w.counts.SYN += w.perTick.SYN
		w.counts.TCP += w.perTick.TCP
		w.counts.Networks = w.perTick.Networks
		questions := w.tick(w.now, w.counts, 1)
		if len(questions) > 0 {
			w.rounds++
		}
		for _, q := range questions {
			if w.way.answers(q) {
				w.path.hasComeBack(w.way.echo(q))
			}
		}
		if until != nil && until() {
			break
		}
	}
	return w.now.Sub(began)
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
		{"while nothing is sent", Counts{}, pathCalm + 4*Tick},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(false)
			w.pass(time.Minute, nil)
			w.way.passes, w.perTick = 0, tc.clients
			if d := w.pass(time.Minute, w.lost); d > tc.within {
				t.Errorf("lost after %s, want %s at most", d, tc.within)
			}
			if w.said().Reason == "" || !w.said().Silent {
				t.Errorf("silent: %v, reason: %q", w.said().Silent, w.said().Reason)
			}
			w.way.passes, w.perTick = 1500, Counts{}
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
	if w.rounds > 31 {
		t.Errorf("asked %d times in a minute, want every %s", w.rounds, pathCalm)
	}
	if w.lost() {
		t.Error("it is not usable")
	}
	w.perTick, w.rounds = Counts{}, 0
	w.counts.SYN++ // and nothing else
	w.pass(time.Minute, nil)
	if w.rounds > 32 {
		t.Errorf("asked %d times in the minute after a SYN, want every %s", w.rounds, pathCalm)
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
		service netip.Addr // from which answers are to come
		syns    Counts
		lost    bool
	}{
		{"20, no echoes from a Service", netip.Addr{}, Counts{SYN: 20, Networks: 1}, true},
		{"19, no echoes from a Service", netip.Addr{}, Counts{SYN: 19, Networks: 1}, false},
		{"20 with echoes", serviceAddr, Counts{SYN: 20, Networks: 1}, false},
		{"199 of 64 networks", serviceAddr, Counts{SYN: 199, Networks: 64}, false},
		{"200 of 2 networks", serviceAddr, Counts{SYN: 200, Networks: 2}, false},
		{"200 of 3 networks", serviceAddr, Counts{SYN: 200, Networks: 3}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(true)
			w.path.wants(tc.service)
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
	for _, service := range []netip.Addr{{}, serviceAddr} {
		w := newWorld(true)
		w.path.wants(service)
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
			w.way.passes = []uint32{0, leastMTU - 1, leastMTU, 1400, 1500, 1500}[rng.IntN(6)]
			w.way.returns, w.way.other = rng.IntN(4) > 0, rng.IntN(4) == 0
			w.path.wants([]netip.Addr{{}, serviceAddr, homeAddr}[rng.IntN(3)])
			w.perTick = Counts{SYN: uint64(rng.IntN(3)), TCP: uint64(rng.IntN(2))}
			if rng.IntN(8) == 0 {
				w.counts = Counts{} // maps are new
			}
			w.pass(time.Duration(rng.IntN(20))*time.Second, nil)
			if v := w.said(); !v.Usable() && v.Reason == "" {
				t.Fatalf("seed %d: not usable without a reason", seed)
			}
		}
		w.way.passes, w.way.returns, w.way.other, w.perTick = 1500, true, false, Counts{SYN: 1, TCP: 5}
		w.pass(4*time.Second, nil)
		if !w.said().Carries {
			t.Fatalf("seed %d: who answers does not carry: %s", seed, w.said().Reason)
		}
		if w.pass(returnMost, w.usable); w.lost() {
			t.Fatalf("seed %d: not usable after a day: %s", seed, w.said().Reason)
		}
	}
}

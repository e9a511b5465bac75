package datapath

import (
	"testing"
	"time"
)

// The times of flows begin anew after 4.9 hours. An agent frees what is silent long before,
// and so never takes it for young; one that was not there for so long does.
func TestSilentFlowsAreFreedBeforeTheirTimesBeginAnew(t *testing.T) {
	const period = time.Duration(1<<16) * unit
	begin, freed := mustClock(t), 0
	table, silent, known := someTable(70), someFlow(1, 1), new(census).silenceOf(&mapSet{}, 0)
	freeSilent := func(now int64) {
		for set := range table.sets.len {
			table.freeSilent(set, now, known, func(*headgateFlow) { freed++ })
		}
	}
	table.add(silent, stateOf(begin, 0, flagSeen|flagCounted|flagOriginal), begin)
	for passed := time.Duration(0); passed < 6*time.Hour; passed += 30 * time.Second {
		freeSilent(begin + int64(passed))
		if _, there := table.find(silent); there != (passed <= longestIdle) && (passed-longestIdle).Abs() > time.Minute {
			t.Fatalf("after %v of silence the flow is there: %t", passed, there)
		}
	}
	if freed != 1 {
		t.Errorf("it was taken out of what is in flight %d times", freed)
	}
	for idle, want := range map[time.Duration]bool{288 * time.Minute: false, 312 * time.Minute: true} { // either side of the period
		table.add(silent, stateOf(begin, 0, flagSeen|flagOriginal), begin)
		freeSilent(begin + int64(idle))
		if w, there := table.find(silent); there != want || there && w.idle(begin+int64(idle)) > idle-period+time.Second {
			t.Errorf("without an agent for %v the flow is there: %t", idle, there)
		}
	}
}

// TestSilentConnectionsStay has the agent count each half minute, until the original direction of a
// connection is gone.
func TestSilentConnectionsStay(t *testing.T) {
	const flags, hour = flagSeen | flagCounted | flagOriginal, time.Hour
	for what, c := range map[string]struct {
		limit, packet, want time.Duration // of silence, when a packet comes, and for how long it stays
		flags               uint32
		full                bool
	}{
		"for a day":               {want: 24 * hour},
		"for as long as is said":  {limit: 6 * hour, want: 6 * hour},
		"not for less":            {limit: hour, want: longestIdle},
		"after a packet":          {limit: 6 * hour, packet: 5 * hour, want: 11 * hour},
		"where there is no room":  {full: true, want: longestIdle},
		"one that is half-open":   {flags: flagHalfOpen, want: longestIdle},
		"one that a side closed":  {flags: flagClosing, want: longestIdle},
		"one that lost a backend": {flags: flagBroken, want: longestIdle},
	} {
		begin, inFlight := mustClock(t), 1
		table, f, known := someTable(70), someFlow(1, 1), new(census).silenceOf(&mapSet{}, c.limit)
		table.add(f, stateOf(begin, 0, flags), begin)
		table.add(reply(f), stateOf(begin, 0, flagSeen|c.flags), begin)
		there, passed := true, time.Duration(0)
		for ; there && passed < 26*hour; passed += 30 * time.Second {
			now := begin + int64(passed)
			if c.packet > 0 && passed == c.packet {
				for w := range table.flows() {
					*w.state = stateOf(now, 0, w.seen&(1<<16-1))
				}
			}
			known.full = c.full
			for set := range table.sets.len {
				table.freeSilent(set, now, known, func(*headgateFlow) { inFlight-- })
			}
			var w way
			if w, there = table.find(f); there && passed > 5*hour && c.packet == 0 && w.idle(now) <= longestIdle {
				t.Fatalf("%s: after %v it looks as if it was silent for %v", what, passed, w.idle(now))
			}
		}
		if (passed - c.want).Abs() > 2*time.Minute {
			t.Errorf("%s: it is gone after %v, want %v", what, passed, c.want)
		}
		if inFlight != 0 {
			t.Errorf("%s: %d are in flight", what, inFlight)
		}
	}
}

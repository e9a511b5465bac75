package agent

import "time"

// Failing is a Service port whose backends fail most of its connections.
type Failing struct {
	Service     string `json:"service"`
	Failed      uint64 `json:"failed"`      // refused, unreachable or without an answer
	Connections uint64 `json:"connections"` // that began meanwhile
}

// How often Service ports are judged, and how old the counts are at least that they are compared with: those
// before are twice as old at the most.
const (
	judgeEvery = 10 * time.Second
	judgeOver  = 30 * time.Second
)

// leastFailed is how many connections have to fail: one alone says little.
const leastFailed = 2

// portCounts is what was counted of a Service port.
type portCounts struct{ connections, failed uint64 }

// since returns what was counted since then. A count that is smaller now began anew: the ID is another's.
func (c portCounts) since(before portCounts) portCounts {
	if c.connections < before.connections || c.failed < before.failed {
		return c
	}
	return portCounts{c.connections - before.connections, c.failed - before.failed}
}

// failing keeps what was counted of Service ports, by ID.
type failing struct {
	judged, began time.Time // when that was, and when newer was counted
	older, newer  map[uint32]portCounts
}

// lookForFailing notes which Service ports fail. Connections that were reset later are none that failed:
// some clients and servers end theirs so.
func (l *live) lookForFailing(k kernel, now time.Time) error {
	f := &l.failing
	if now.Sub(f.judged) < judgeEvery {
		return nil
	}
	f.judged = now
	ids, err := k.Services()
	if err != nil {
		return err
	}
	counts, found := make(map[uint32]portCounts, len(f.newer)), []Failing(nil)
	for id := range ids {
		t, err := k.Traffic(id)
		if err != nil {
			return err
		}
		c := portCounts{t.Connections, t.Failed.Refused + t.Failed.TimedOut + t.Failed.Unreachable}
		if c == (portCounts{}) {
			continue
		}
		counts[id] = c
		if c = c.since(f.older[id]); f.older == nil || c.failed < leastFailed || 2*c.failed <= c.connections {
			continue
		}
		service, err := k.Service(id)
		if err != nil {
			return err
		}
		found = append(found, Failing{service.String(), c.failed, c.connections})
	}
	if f.older == nil {
		f.older, f.newer, f.began = counts, counts, now
	} else if now.Sub(f.began) >= judgeOver {
		f.older, f.newer, f.began = f.newer, counts, now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.Failing = found
	return nil
}

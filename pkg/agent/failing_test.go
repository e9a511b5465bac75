package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
)

func TestAServiceFailsWhereMostOfItsConnectionsDo(t *testing.T) {
	m, l, now := newFakeMaps(), newLive(Config{}, time.Now()), time.Now()
	m.connect(1, 1000)
	const web = "default/web-1:http/TCP"
	m.failed = map[uint32]datapath.Failures{1: {Refused: 900}}
	look := func(when string, passes time.Duration, began uint64, more datapath.Failures, want ...Failing) {
		t.Helper()
		now = now.Add(passes)
		m.began[1] += began
		f := m.failed[1]
		m.failed[1] = datapath.Failures{Refused: f.Refused + more.Refused, TimedOut: f.TimedOut + more.TimedOut, Unreachable: f.Unreachable + more.Unreachable, Reset: f.Reset + more.Reset}
		if err := l.lookForFailing(m, now); err != nil || !slices.Equal(l.get().Failing, want) {
			t.Errorf("%s: %v, %v, want %v", when, l.get().Failing, err, want)
		}
	}
	look("what earlier agents counted", 0, 0, datapath.Failures{})
	look("too early to look again", judgeEvery-1, 10, datapath.Failures{Refused: 9})
	look("then", 1, 0, datapath.Failures{}, Failing{web, 9, 10})
	look("half of them", judgeEvery, 8, datapath.Failures{})
	look("more than half, of each reason", judgeEvery, 0, datapath.Failures{TimedOut: 1, Unreachable: 1}, Failing{web, 11, 18})
	look("a minute later", 2*judgeOver, 0, datapath.Failures{}, Failing{web, 11, 18})
	look("two minutes later", judgeOver, 0, datapath.Failures{})
	look("one connection", judgeEvery, 1, datapath.Failures{Refused: 1})
	look("resets", judgeOver, 9, datapath.Failures{Reset: 9})
	m.began[1], m.failed[1] = 3, datapath.Failures{Refused: 3}
	look("another Service has the ID", judgeEvery, 0, datapath.Failures{}, Failing{web, 3, 3})
}

package hostile_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// killCount is how often the agent is killed, killSeed what decides when.
const (
	killCount = "HEADGATE_KILLS"
	killSeed  = "HEADGATE_KILL_SEED"
)

// life is that of one agent.
type life struct {
	killed, launched time.Time // the agent before it, and this one
	ready            time.Time // zero for never
	upgrade          string    // what is of another size than before, "" for nothing
}

// change is one of the backend that comes and goes.
type change struct {
	present        bool      // in the files
	written, known time.Time // the latter zero if no agent is known to have read it
}

// TestKillsBreakNoConnection kills the agent at random moments, while endpoints come and
// go, and Services come until maps have to grow. Some agents start with other sizes of
// maps, which is an upgrade in place. Nothing may fail but a connection to a backend that
// was withdrawn from the one Service where none drains.
func TestKillsBreakNoConnection(t *testing.T) {
	killAgents(t, numberOf(t, killCount, 20), (*drill).resize)
}

// TestKillsWithAnotherFlowTableBreakNoConnection has every agent begin with a flow table of
// another size than the one before: what was killed while flows moved is gone on with, or
// taken back. A datagram that begins a flow just while programs are replaced may be lost.
func TestKillsWithAnotherFlowTableBreakNoConnection(t *testing.T) {
	killAgents(t, numberOf(t, killCount, 20), (*drill).resizeFlows)
}

// killAgents kills so many agents; resize says what the next one has in another size.
func killAgents(t *testing.T, kills int, resize func(*drill, int) string) {
	t.Helper()
	seed := uint64(numberOf(t, killSeed, int(time.Now().UnixNano()&0xffff_ffff)))
	t.Logf("%s=%d", killSeed, seed)
	d := newDrill(t, rand.New(rand.NewPCG(seed, 1)))
	if resize(d, 1) == "flows" {
		d.mayLose = kills / 2
	}
	usual := 500 * time.Millisecond
	for i := range kills {
		l := d.live(i, usual, resize)
		d.lives = append(d.lives, l)
		usual += usual / 4 // until one is ready
		if !l.ready.IsZero() {
			usual = l.ready.Sub(l.launched)
		}
	}
	d.agent.Kill()
	d.revive()
	d.awaitFrontends(drillFrontends + kills*crowdOf)
	time.Sleep(time.Second)
	d.judge(t)
}

// revive starts an agent that reads everything.
func (d *drill) revive() {
	d.tb.Helper()
	d.agent.Start()
	d.note(time.Now())
}

// live kills the agent, and has the next one live for up to twice as long as one usually
// takes to be ready. Files change before it starts, or while it lives.
func (d *drill) live(i int, usual time.Duration, resize func(*drill, int) string) life {
	l := life{killed: time.Now()}
	d.agent.Kill()
	l.upgrade = resize(d, i)
	early := d.rand.IntN(2) == 0
	if early {
		d.shuffle(i)
	}
	l.launched = time.Now()
	d.agent.Launch()
	span := d.rand.Int64N(int64(2 * usual))
	d.wait(&l, time.Duration(d.rand.Int64N(span+1)))
	if !early {
		d.shuffle(i)
	}
	d.wait(&l, time.Duration(span))
	if early && !l.ready.IsZero() {
		d.note(l.ready)
	}
	return l
}

// wait waits until so long after the start of an agent, and notes whether it is ready.
func (d *drill) wait(l *life, span time.Duration) {
	end := l.launched.Add(span)
	select {
	case <-d.agent.Ready:
		if l.ready.IsZero() {
			l.ready = time.Now()
		}
		time.Sleep(time.Until(end))
	case <-time.After(time.Until(end)):
	}
}

// resize gives the next agent another size of a map from time to time, and says of which.
func (d *drill) resize(i int) string {
	if i%4 != 3 {
		return ""
	}
	d.agent.SocketEntries ^= 1<<12 | 1<<13
	return "socket entries"
}

// resizeFlows gives each agent another size of the flow table, by the last flag.
func (d *drill) resizeFlows(i int) string {
	d.agent.Flags[len(d.agent.Flags)-1] = []string{"131072", "65536"}[i%2]
	return "flows"
}

// shuffle writes more Services, and two times of three has the third backend come or go.
func (d *drill) shuffle(i int) {
	d.agent.Write(fmt.Sprintf("crowd-%03d.yaml", i), crowd(i))
	if d.rand.IntN(3) > 0 {
		d.change(!d.present())
	}
}

// change has the third backend come or go.
func (d *drill) change(present bool) {
	d.changes = append(d.changes, change{present: present, written: time.Now()})
	for _, o := range []object{sticky, probed, abrupt} {
		d.agent.Write(o.name+".yaml", withEndpoints(o, present))
	}
}

// present says whether the third backend is in the files.
func (d *drill) present() bool { return d.changes[len(d.changes)-1].present }

// note notes that an agent has read the last change.
func (d *drill) note(at time.Time) {
	if last := &d.changes[len(d.changes)-1]; last.known.IsZero() {
		last.known = at
	}
}

// numberOf is a number that somebody may set.
func numberOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is %q: write a number", variable, text)
	}
	return n
}

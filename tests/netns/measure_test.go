package netns_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// measuring are pods, each of which has its own answers from the same addresses.
type measuring struct {
	all []*thinking // outside of pods nobody asks them
}

// Others take so long that a pause of the machine is little beside it.
const metFast, metSlow = 10 * time.Millisecond, 400 * time.Millisecond

// pod enters a network namespace and asks there, where the first backend answers after
// a while, and the others soon. It returns the share of the first.
func (m measuring) pod(t *testing.T, enter func(testing.TB), first time.Duration, times int) float64 {
	t.Helper()
	enter(t)
	var here []*thinking
	for _, s := range m.all {
		here = append(here, mustThink(t, s.at.String(), metFast))
	}
	here[0].delay.Store(int64(first))
	for range times {
		s := mustSocket(t, inet, unix.SOCK_STREAM)
		s.mustConnect(at(slowVIP))
		s.send("?")
		patience := unix.NsecToTimeval(int64(2 * metSlow))
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
			t.Fatal(err)
		}
		_, _ = unix.Read(s.fd, make([]byte, 1)) // or it gives up
		s.close()
	}
	return share(here)
}

// meets is a pod that meets the first backend, which is slow to it.
func (m measuring) meets(t *testing.T, name string, first time.Duration) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if got := m.pod(t, testenv.EnterNetns, first, 40); got == 0 {
			t.Error("the pod has not met the backend that is slow to it")
		}
	})
}

// wants is a pod to which all backends are fast, and that has not asked any before. The pod before may have
// measured a pause of the machine, which fades within seconds; what must not be believed takes twice as long.
func (m measuring) wants(t *testing.T, when string, least, most float64) {
	t.Helper()
	t.Run("a pod to which all are fast, "+when, func(t *testing.T) {
		got := -1.0
		for begin := time.Now(); got < least && time.Since(begin) < 6*time.Second; time.Sleep(time.Second) {
			got = m.pod(t, testenv.EnterNetns, metFast, 100)
		}
		if got < least || got > most {
			t.Errorf("the first of four has %.3f of what was asked, want %.2f to %.2f", got, least, most)
		}
	})
}

// What one client measures, by asking for what takes long or by giving up, would make a
// backend look slow to all others. Any process can make namespaces of users.
func TestWhatOneClientMeasuresMovesNobodyElse(t *testing.T) {
	ofUser := func(tb testing.TB) { tb.Helper(); namespaceOf(tb, 65534) }
	eachMeasuring(t, func(t *testing.T, m measuring, first time.Duration) {
		m.meets(t, "a pod", first)
		m.wants(t, "after one pod", 0.03, 0.6)
		for range 2 {
			t.Run("a namespace of a user", func(t *testing.T) { m.pod(t, ofUser, first, 8) })
		}
		m.wants(t, "after namespaces of a user", 0.03, 0.6)
	})
}

func TestWhatTwoClientsMeasureIsBelieved(t *testing.T) {
	eachMeasuring(t, func(t *testing.T, m measuring, first time.Duration) {
		m.meets(t, "a pod", first)
		m.meets(t, "another pod", first)
		m.wants(t, "after two pods", 0, 0.1)
	})
}

// eachMeasuring tests with each algorithm that goes by response times, and with a backend
// that is slow or never answers.
func eachMeasuring(t *testing.T, test func(t *testing.T, m measuring, first time.Duration)) {
	t.Helper()
	for a, first := range map[lb.Algorithm]time.Duration{lb.P2C: metSlow, lb.Latency: time.Minute} {
		t.Run(a.String(), func(t *testing.T) {
			test(t, measuring{mustThinkers(t, mustNode(t), a, 0, "10.244.8.1", "10.244.8.2", "10.244.8.3", "10.244.8.4")}, first)
		})
	}
}

package netns_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

const slowVIP = "10.96.7.8:80"

// thinking is a server that answers what comes by each connection after a while.
type thinking struct {
	backend
	delay atomic.Int64 // ns
	asked atomic.Int64 // how often
}

func mustThink(t *testing.T, at string, delay time.Duration) *thinking {
	t.Helper()
	s := &thinking{backend: backend{at: mustAddrPort(at)}}
	s.delay.Store(int64(delay))
	testenv.AddAddress(t, s.at.Addr.String())
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(s.addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			go s.think(c)
		}
	}()
	return s
}

func (s *thinking) think(c net.Conn) {
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return
	}
	s.asked.Add(1)
	time.Sleep(time.Duration(s.delay.Load()))
	_, _ = io.WriteString(c, "!")
	_, _ = io.Copy(c, c) // what comes next is answered at once
}

// askAll has clients come one every so often for so long, however long others take.
func askAll(t *testing.T, every, took time.Duration) {
	t.Helper()
	var wait sync.WaitGroup
	pace := time.NewTicker(every)
	defer pace.Stop()
	for end := time.Now().Add(took); time.Now().Before(end); <-pace.C {
		wait.Go(func() {
			if err := askOnce(t.Context(), slowVIP); err != nil {
				t.Errorf("ask %s: %v", slowVIP, err)
			}
		})
	}
	wait.Wait()
}

func askOnce(ctx context.Context, to string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", to)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "?"); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// mustThinkers starts servers behind slowVIP, of which the first is slow.
func mustThinkers(t *testing.T, n *node, a lb.Algorithm, slow time.Duration, addresses ...string) []*thinking {
	t.Helper()
	f := lb.Frontend{AddrPort: mustAddrPort(slowVIP + "/TCP"), Port: "main", Policy: lb.Policy{Algorithm: a}}
	var all []*thinking
	for _, addr := range addresses {
		s := mustThink(t, addr+":8080/TCP", 2*time.Millisecond)
		all = append(all, s)
		f.Members = append(f.Members, s.at)
	}
	all[0].delay.Store(int64(slow))
	f.Views[lb.Internal].Backends = f.Members
	n.set("slow", f)
	return all
}

// share is the part of the first of what all were asked since the last time.
func share(all []*thinking) float64 {
	first, sum := int64(0), int64(0)
	for i, s := range all {
		asked := s.asked.Swap(0)
		if i == 0 {
			first = asked
		}
		sum += asked
	}
	return float64(first) / float64(sum)
}

// Clients come so seldom that the slow one is idle most of the time: what is in
// flight alone gives it a seventh then, of what would be a fifth. Once it is fast it has its
// share again, by when the documentation says.
func TestASlowBackendGetsLittleUntilItIsFast(t *testing.T) {
	const slow, every, most, recovers = 100 * time.Millisecond, 50 * time.Millisecond, 0.09, 30 * time.Second
	for _, a := range []lb.Algorithm{lb.P2C, lb.Latency} {
		t.Run(a.String(), func(t *testing.T) {
			n := mustNode(t)
			all := mustThinkers(t, n, a, slow, "10.244.8.1", "10.244.8.2", "10.244.8.3", "10.244.8.4", "10.244.8.5")
			askAll(t, every, time.Second)
			share(all)
			askAll(t, every, 5*time.Second)
			got := share(all)
			t.Logf("the slow one of five has %.3f of what was asked", got)
			if got > most {
				t.Errorf("the slow one of five has %.3f of what was asked, want at most %.3f", got, most)
			}
			all[0].delay.Store(all[1].delay.Load())
			for began := time.Now(); ; {
				askAll(t, every/2, 2*time.Second)
				if share(all) > 0.1 {
					t.Logf("it has its share again after %s", time.Since(began).Round(time.Second))
					return
				}
				if time.Since(began) > recovers {
					t.Fatalf("%s after it is fast again it has not got its share", recovers)
				}
			}
		})
	}
}

// caller is a client that knows how long it has waited.
type caller struct {
	net.Conn
	asked  time.Time // last
	waited time.Duration
}

func (c *caller) ask() {
	c.asked = time.Now()
	_, _ = io.WriteString(c, "?")
}

// hear waits for the answer.
func (c *caller) hear() {
	_, _ = c.Read(make([]byte, 1))
	c.waited = time.Since(c.asked)
}

// giveUp goes without one.
func (c *caller) giveUp() {
	_ = c.Close()
	c.waited = time.Since(c.asked)
}

// What a client waits for in vain counts, and what it does not wait for does not. On a busy machine
// clients wait for longer: what is measured is held against what they saw themselves.
func TestHowLongABackendTakesToAnswerIsMeasured(t *testing.T) {
	n := mustNode(t)
	const thinks, while, notSoon = 300 * time.Millisecond, 500 * time.Millisecond, time.Minute
	for i, c := range []struct {
		name   string
		thinks time.Duration
		client func(*caller)
		least  time.Duration
	}{
		{"an answer", thinks, func(c *caller) { c.ask(); c.hear() }, thinks},
		{"an answer, and a while until it is closed", thinks, func(c *caller) { c.ask(); c.hear(); time.Sleep(while) }, thinks},
		{"an answer long ago", thinks, func(c *caller) { c.ask(); c.hear(); time.Sleep(2500 * time.Millisecond); c.waited = 0 }, 0},
		{"no answer yet", notSoon, func(c *caller) { c.ask(); time.Sleep(while); c.giveUp() }, while},
		{"no question", thinks, func(*caller) { time.Sleep(while) }, 0},
		{"two answers, the last counts", thinks, func(c *caller) { c.ask(); c.hear(); c.ask(); c.hear() }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			first, second := fmt.Sprintf("10.244.9.%d", 2*i+1), fmt.Sprintf("10.244.9.%d", 2*i+2)
			all := mustThinkers(t, n, lb.Latency, c.thinks, first, second)
			all[1].delay.Store(int64(c.thinks))
			conn, err := net.Dial("tcp4", slowVIP)
			if err != nil {
				t.Fatal(err)
			}
			client := &caller{Conn: conn}
			c.client(client)
			_ = conn.Close()
			got, most := n.answerTime(&all[0].backend)+n.answerTime(&all[1].backend), client.waited+thinks/2 // one of them knows nothing
			t.Logf("response time %s, the client saw %s", got, client.waited)
			if got < c.least || got > most {
				t.Errorf("response time %s, want %s to %s", got, c.least, most)
			}
		})
	}
}

func (n *node) answerTime(b *backend) time.Duration {
	n.tb.Helper()
	return n.load(b).Response
}

// Who has only shaken hands is not known to be fast: he would get everything until his
// first answer.
func TestANewSlowBackendIsNotFlooded(t *testing.T) {
	n := mustNode(t)
	addresses := []string{"10.244.8.1", "10.244.8.2", "10.244.8.3", "10.244.8.4", "10.244.8.5"}
	all := mustThinkers(t, n, lb.Latency, 400*time.Millisecond, addresses...)
	for _, s := range all[1:] {
		s.delay.Store(int64(20 * time.Millisecond))
	}
	askAll(t, 10*time.Millisecond, 400*time.Millisecond) // until it answers
	got := share(all)
	t.Logf("the slow one of five has %.3f of what was asked", got)
	if got > 0.3 {
		t.Errorf("the slow one of five has %.3f of what was asked before its first answer, want about a fifth or less", got)
	}
}

package netns_test

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// load is new connections to a Service, about 1,000 a second, each of which
// must come to one of the backends that are wanted.
type load struct {
	tb   testing.TB
	stop func()

	mu       sync.Mutex
	done     int
	answers  map[string]int
	failures []string
	wanted   []string
}

// mustLoad begins to connect, and stops with the test at the latest.
func mustLoad(tb testing.TB, k kind, to netip.AddrPort, backends ...*backend) *load {
	tb.Helper()
	return mustLoadOf(tb, time.Millisecond, k, to, backends...)
}

// mustHammer is a load as fast as it goes.
func mustHammer(tb testing.TB, k kind, to netip.AddrPort, backends ...*backend) *load {
	tb.Helper()
	return mustLoadOf(tb, time.Nanosecond, k, to, backends...)
}

func mustLoadOf(tb testing.TB, pause time.Duration, k kind, to netip.AddrPort, backends ...*backend) *load {
	tb.Helper()
	l := &load{tb: tb, answers: map[string]int{}}
	l.want(backends...)
	quit, over := make(chan struct{}), make(chan struct{})
	l.stop = sync.OnceFunc(func() { close(quit); <-over })
	tb.Cleanup(l.stop)
	go func() {
		defer close(over)
		pace := time.NewTicker(pause)
		defer pace.Stop()
		for {
			select {
			case <-quit:
				return
			case <-pace.C:
				l.count(connectOnce(k, to))
			}
		}
	}()
	return l
}

// want says which backends may answer from now on.
func (l *load) want(backends ...*backend) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = nil
	for _, b := range backends {
		l.wanted = append(l.wanted, b.name())
	}
}

func (l *load) count(who string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
	l.answers[who]++
	switch {
	case err != nil:
		l.failures = append(l.failures, fmt.Sprintf("connection %d: %v", l.done, err))
	case !slices.Contains(l.wanted, who):
		l.failures = append(l.failures, fmt.Sprintf("connection %d comes to %q, want one of %q", l.done, who, l.wanted))
	}
}

// await returns when n more connections have been made.
func (l *load) await(n int) {
	l.tb.Helper()
	made := func() int { l.mu.Lock(); defer l.mu.Unlock(); return l.done }
	until := made() + n
	for range 60_000 {
		if made() >= until {
			return
		}
		time.Sleep(time.Millisecond)
	}
	l.tb.Fatalf("in a minute not %d more connections, %d in all", n, made())
}

// wantNoFailure ends the load, and fails the test if a connection has failed.
func (l *load) wantNoFailure() {
	l.tb.Helper()
	l.stop()
	l.tb.Logf("%d connections: %v", l.done, l.answers)
	if n := len(l.failures); n > 0 {
		l.tb.Errorf("%d of %d connections failed, the first: %q", n, l.done, l.failures[:min(n, 5)])
	}
}

// connectOnce connects, checks the peer and returns who answers.
func connectOnce(k kind, to netip.AddrPort) (string, error) {
	fd, err := unix.Socket(k.family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	s := &socket{fd: fd, kind: k}
	defer s.close()
	limit := unix.Timeval{Sec: 10}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return "", err
	}
	if err := s.connect(to); err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	buf := make([]byte, 256)
	n := 0
	if err := again(func() (err error) { n, err = unix.Read(fd, buf); return err }); err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	if peer, err := s.peer(); err != nil || peer != k.of(to) {
		return "", fmt.Errorf("getpeername says %v (%v), want %v", peer, err, to)
	}
	return string(buf[:n]), nil
}

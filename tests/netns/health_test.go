package netns_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// healthNode is a node on which two failures in a row eject a backend.
func healthNode(tb testing.TB) *node {
	tb.Helper()
	cfg := config(tb)
	cfg.EjectAfter, cfg.MaxEjected = 2, 50
	return mustNodeOf(tb, cfg)
}

// nobody is an address where nobody listens.
func nobody(tb testing.TB, at string) *backend {
	tb.Helper()
	b := &backend{at: mustAddrPort(at)}
	testenv.AddAddress(tb, b.at.Addr.String())
	return b
}

// connects opens n connections, one after the other, and returns how many of them
// each backend took, and how many were refused.
func connects(tb testing.TB, n int, to netip.AddrPort) (took map[string]int, refused int) {
	tb.Helper()
	took = map[string]int{}
	for range n {
		s := mustSocket(tb, inet, unix.SOCK_STREAM)
		switch err := s.connect(to); {
		case errors.Is(err, unix.ECONNREFUSED):
			refused++
		case err != nil:
			tb.Fatal(err)
		default:
			who, _ := s.receive()
			took[who]++
		}
		s.close()
	}
	return took, refused
}

// mostRefused is how many connections an ejected backend may still refuse: those that
// eject it, and a retry after a second and after twice that each time.
func mostRefused(n *node, began time.Time) int {
	retries := 0
	for wait, at := time.Second, time.Since(began); at > wait; wait *= 2 {
		at -= wait
		retries++
	}
	return int(n.cfg.EjectAfter) + retries
}

func TestABackendThatRefusesIsAvoided(t *testing.T) {
	n := healthNode(t)
	dead := nobody(t, "10.244.0.4:8080/TCP")
	f := frontend("10.96.0.1:80/TCP", mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP"),
		mustServe(t, "10.244.0.3:8080/TCP"), dead)
	for _, a := range []lb.Algorithm{lb.Random, lb.RR, lb.Maglev, lb.LC, lb.P2C} {
		t.Run(a.String(), func(t *testing.T) {
			f.Algorithm = a
			began := time.Now()
			n.set("web", f)
			took, refused := connects(t, 400, at("10.96.0.1:80"))
			if most := mostRefused(n, began); refused > most || len(took) != 3 {
				t.Errorf("%d of 400 connections were refused, want %d at most; the others went to %v", refused, most, took)
			}
		})
	}
	f.Algorithm, f.PassiveHealth = lb.Random, lb.SwitchOff
	n.set("web", f)
	if _, refused := connects(t, 400, at("10.96.0.1:80")); refused < 40 {
		t.Errorf("without passive health %d of 400 connections were refused, want about 100", refused)
	}
}

func TestNoMoreThanItsShareOfAServiceIsAvoided(t *testing.T) {
	n := healthNode(t)
	n.set("web", frontend("10.96.0.1:80/TCP", mustServe(t, "10.244.0.1:8080/TCP"), nobody(t, "10.244.0.2:8080/TCP"),
		nobody(t, "10.244.0.3:8080/TCP"), nobody(t, "10.244.0.4:8080/TCP")))
	connects(t, 100, at("10.96.0.1:80"))
	// Two of the three ejected backends are avoided, the third one is not.
	if took, refused := connects(t, 200, at("10.96.0.1:80")); refused < 20 || took["10.244.0.1:8080/TCP"] < 100 {
		t.Errorf("%d connections were refused and %v taken, want about 50 and 150", refused, took)
	}
}

func TestABackendThatCameBackIsUsedAgain(t *testing.T) {
	n := healthNode(t)
	gone := nobody(t, "10.244.0.2:8080/TCP")
	gone.hold = make(chan struct{})
	n.set("web", frontend("10.96.0.1:80/TCP", mustServe(t, "10.244.0.1:8080/TCP"), gone))
	connects(t, 50, at("10.96.0.1:80"))
	before := n.status().Counters
	if before["backend_ejected"] == 0 || before["choice_avoided"] == 0 {
		t.Fatalf("nobody is ejected: %v", before)
	}
	gone.mustListen(t)
	for end := time.Now().Add(30 * time.Second); n.status().Counters["backend_recovered"] == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the backend did not come back")
		}
		connects(t, 5, at("10.96.0.1:80"))
	}
	if took, refused := connects(t, 200, at("10.96.0.1:80")); refused > 0 || took[gone.name()] < 50 {
		t.Errorf("%d connections were refused and %v taken, want none and about 100 each", refused, took)
	}
}

// fullBacklog is a server whose backlog is full: the kernel drops what comes, as
// if the node were gone.
func fullBacklog(tb testing.TB, at string) *backend {
	tb.Helper()
	b := nobody(tb, at)
	l := mustSocket(tb, inet, unix.SOCK_STREAM)
	if err := errors.Join(unix.Bind(l.fd, l.sockaddr(b.addr())), unix.Listen(l.fd, 0)); err != nil {
		tb.Fatal(err)
	}
	for range 2 {
		mustBegin(tb, b.addr())
	}
	return b
}

// mustBegin begins to connect and does not wait.
func mustBegin(tb testing.TB, to netip.AddrPort) *socket {
	tb.Helper()
	s := mustSocket(tb, inet, unix.SOCK_STREAM|unix.SOCK_NONBLOCK)
	if err := s.connect(to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		tb.Fatal(err)
	}
	return s
}

func TestABackendThatIsSilentIsNoticedByTheKernel(t *testing.T) {
	n := healthNode(t)
	silent := fullBacklog(t, "10.244.0.2:8080/TCP")
	n.set("web", frontend("10.96.0.1:80/TCP", mustServe(t, "10.244.0.1:8080/TCP"), silent))
	began := time.Now()
	for range 16 {
		mustBegin(t, at("10.96.0.1:80"))
	}
	for n.status().Counters["backend_ejected"] == 0 {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("nobody is ejected: %v", n.status().Counters)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("noticed after %v", time.Since(began).Round(time.Millisecond))
	for range 50 { // a connection to the silent one would wait for seconds
		before := n.status().Counters["backend_retry"]
		s := mustBegin(t, at("10.96.0.1:80"))
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
		ready, err := unix.Poll(fds, 900)
		if (err != nil || ready != 1) && n.status().Counters["backend_retry"] == before {
			t.Fatalf("a connection that is not a retry waits: %v", err)
		}
	}
}

func TestFallbacksStandInWhereThePreferredAreEjected(t *testing.T) {
	n := healthNode(t)
	near, far := nobody(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")
	f := frontend("10.96.0.1:80/TCP", near)
	f.Views[lb.Internal].FallsBack = true
	f.Views[lb.FallbackAll] = lb.View{Backends: []lb.AddrPort{near.at, far.at}}
	began := time.Now()
	n.set("web", f)
	if took, refused := connects(t, 100, at("10.96.0.1:80")); refused > mostRefused(n, began) || took[far.name()] < 90 {
		t.Errorf("%d connections were refused and %v taken", refused, took)
	}
	if c := n.status().Counters; c["choice_fallback"] == 0 {
		t.Errorf("no choice was widened: %v", c)
	}
}

func TestAShareOfTheClientsSpills(t *testing.T) {
	n := healthNode(t)
	near, far := mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")
	f := frontend("10.96.0.1:80/TCP", near)
	f.Views[lb.Internal].FallsBack, f.Spill = true, 1<<31 // half of them, of which half come back
	f.Views[lb.FallbackAll] = lb.View{Backends: []lb.AddrPort{near.at, far.at}}
	n.set("web", f)
	if took, _ := connects(t, 800, at("10.96.0.1:80")); took[far.name()] < 120 || took[far.name()] > 280 {
		t.Errorf("connections went to %v, want about 200 to %s", took, far.name())
	}
}

func TestANewBackendStartsSlowly(t *testing.T) {
	n := healthNode(t)
	old, young := mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")
	f := frontend("10.96.0.1:80/TCP", old)
	f.SlowStart = 5
	n.set("web", f)
	connects(t, 1, at("10.96.0.1:80"))
	time.Sleep(5100 * time.Millisecond)
	f = frontend("10.96.0.1:80/TCP", old, young)
	f.SlowStart = 5
	n.set("web", f)
	began := time.Now()
	took, _ := connects(t, 200, at("10.96.0.1:80"))
	if time.Since(began) < 2*time.Second && took[young.name()] > 70 {
		t.Errorf("the new backend took %d of the first 200 connections, want less than half of its share", took[young.name()])
	}
	time.Sleep(time.Until(began.Add(5100 * time.Millisecond)))
	if took, _ := connects(t, 200, at("10.96.0.1:80")); took[young.name()] < 60 {
		t.Errorf("after its slow start the new backend took %d of 200 connections, want about 100", took[young.name()])
	}
}

// wantOne opens connections and fails the test where they go to more than one
// backend.
func wantOne(tb testing.TB, n int, to netip.AddrPort) {
	tb.Helper()
	if took, refused := connects(tb, n, to); len(took) != 1 || refused > 0 {
		tb.Errorf("%d connections of one client went to %v, and %d were refused; want one backend", n, took, refused)
	}
}

func TestSessionAffinityOutlivesSpillAndSlowStart(t *testing.T) {
	n := healthNode(t)
	near, far := mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")
	for i := range 8 { // of which about half get the one that is not preferred
		f := frontend(fmt.Sprintf("10.96.0.%d:80/TCP", 1+i), near)
		f.AffinityTimeout = 60
		f.Views[lb.Internal].FallsBack, f.Spill = true, 1<<32-1
		f.Views[lb.FallbackAll] = lb.View{Backends: []lb.AddrPort{near.at, far.at}}
		n.set(fmt.Sprint("web-", i), f)
		wantOne(t, 20, netip.AddrPortFrom(f.Addr, f.AddrPort.Port))
	}
	f := frontend("10.96.1.1:80/TCP", near, far)
	f.AffinityTimeout, f.SlowStart = 60, 60
	n.set("slow", f)
	wantOne(t, 100, at("10.96.1.1:80"))
}

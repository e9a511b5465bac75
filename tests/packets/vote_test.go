package packets

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// foreign is a book whose clients have a /64 each.
func foreign(b book) book {
	if b.client.Is6() {
		a := netip.MustParseAddr
		b.client, b.other, b.router = a("2001:db8:c::7"), a("2001:db8:d::8"), a("2001:db8:e::1")
	}
	return b
}

// TestVotes has clients elsewhere say that a backend does not answer.
func TestVotes(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.EjectAfter, c.MaxEjected = 2, 50 })
	for _, b := range []book{v4, foreign(v6)} {
		for _, s := range []story{
			{"One client ejects it for itself alone", oneClientEjectsForItselfAlone},
			{"Several clients eject it for all", severalClientsEjectForAll},
			{"A connection within the last second outweighs failures", aConnectionOutweighsFailures},
			{"Before a retry confirms it few clients are sent far away", beforeARetryConfirmsItFewClientsAreSentFarAway},
			{"A network of IPv6 is one client", aNetworkOfIPv6IsOneClient},
			{"Who failed last leaves the retry to others", theClientThatFailedLastLeavesTheRetryToOthers},
			{"Clients alone keep no backend slow", clientsAloneKeepNoBackendSlow},
			{"The best of the others takes the place of an ejected one", theBestOfTheOthersIsTaken},
		} {
			t.Run(s.name+" "+b.family(), func(t *testing.T) { r.tell(t, s, cast{b, r, lb.TCP}) })
		}
	}
}

// election is clients that say that the first of two backends does not answer.
type election struct {
	cast
	bad, good netip.AddrPort
	port      uint16 // of clients
}

// hold gives the first backend an address of its own, and one that both share.
func hold(t *testing.T, c cast) *election {
	t.Helper()
	e := &election{cast: c, bad: at(c.local, 8080), good: at(c.local2, 8080), port: 40000}
	c.set(t, "alone", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), e.bad))
	c.set(t, "both", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), e.bad, e.good))
	return e
}

// vote has a client send a SYN to the first backend, and again a second later.
func (e *election) vote(t *testing.T, client netip.Addr) {
	t.Helper()
	e.port++
	p := e.packet(at(client, e.port), at(e.vip2, 80), 0)
	e.becomes(t, "a SYN", in, uplink, p, p.to(p.src, e.bad))
	e.age(t, 1)
	e.becomes(t, "the SYN again", in, uplink, p, p.to(p.src, e.bad))
}

// takes has the first backend answer a client.
func (e *election) takes(t *testing.T, client netip.Addr) {
	t.Helper()
	e.port++
	p := e.packet(at(client, e.port), at(e.vip2, 80), 0)
	e.becomes(t, "a SYN", in, uplink, p, p.to(p.src, e.bad))
	a := p.to(p.src, e.bad).answer("SA", nil)
	e.becomes(t, "the answer", out, uplink, a, a.to(at(e.vip2, 80), p.src))
}

// The time of health goes by 2^26 ns: 15 and 256 of them are a second and 17.
const (
	second = 15
	long   = 256
)

// healthTime is the present as the records of backends have it.
func healthTime(t *testing.T) uint64 {
	t.Helper()
	var now unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	return uint64(now.Nano()) >> 26
}

// write changes what is noted of a backend, so that no story waits or has to be told
// in time.
func (e *election) write(t *testing.T, backend netip.AddrPort, name string, value uint64) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(e.root, "maps", "backends"), nil)
	must(t, err)
	defer m.Close()
	of := field(t, m, "backend", name)
	size, err := btf.Sizeof(of.Type)
	must(t, err)
	for id, b := range e.told.Backends {
		if at(b.Addr, b.Port) != backend {
			continue
		}
		record, err := m.LookupBytes(id)
		must(t, err)
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], value)
		copy(record[of.Offset.Bytes():], word[:size])
		must(t, m.Put(id, record))
		return
	}
	t.Fatalf("there is no backend %s", backend)
}

// retryIsDue ends the wait for the next retry.
func (e *election) retryIsDue(t *testing.T) {
	t.Helper()
	e.write(t, e.bad, "next_retry", healthTime(t))
}

// sent is how many of so many connections of a client go to the first backend.
func (e *election) sent(t *testing.T, client netip.Addr, connections int) (n int) {
	t.Helper()
	for range connections {
		e.port++
		if e.comesOut(t, "a connection", in, uplink, e.packet(at(client, e.port), at(e.vip, 80), 0)).dst == e.bad {
			n++
		}
	}
	return n
}

// avoids says whether a client avoids the first backend, but for a retry a second.
func (e *election) avoids(t *testing.T, what string, client netip.Addr, want bool) {
	t.Helper()
	began := time.Now()
	n := e.sent(t, client, 60)
	if retries := 1 + int(time.Since(began)/time.Second); want && n > retries || !want && n < 10 {
		t.Errorf("%s: %d of 60 connections of %s go to the backend, want it avoided: %v", what, n, client, want)
	}
}

func oneClientEjectsForItselfAlone(t *testing.T, c cast) {
	e := hold(t, c)
	for range 9 {
		e.vote(t, c.client)
	}
	e.avoids(t, "the client that says so", c.client, true)
	e.avoids(t, "another client", c.other, false)
}

func severalClientsEjectForAll(t *testing.T, c cast) {
	e := hold(t, c)
	e.vote(t, c.client)
	e.vote(t, c.other)
	e.avoids(t, "a third client", c.router, true)
}

func aConnectionOutweighsFailures(t *testing.T, c cast) {
	e := hold(t, c)
	e.takes(t, c.router)
	e.write(t, e.bad, "taken_at", healthTime(t)+long) // as if all of this took no time
	for range 4 {
		e.vote(t, c.client)
		e.vote(t, c.other)
	}
	e.avoids(t, "within the same second", c.router, false)
	e.write(t, e.bad, "taken_at", healthTime(t)-2*second)
	e.vote(t, c.client)
	e.avoids(t, "a second later", c.router, true)
}

// A view of one backend, which a wider one stands in for.
func beforeARetryConfirmsItFewClientsAreSentFarAway(t *testing.T, c cast) {
	e := hold(t, c)
	f := c.frontend(lb.LoadBalancerIP, at(c.vip, 80), e.bad, e.good)
	f.Views[lb.External] = lb.View{Backends: f.Members[:1:1], FallsBack: true}
	f.Views[lb.FallbackAll] = lb.View{Backends: f.Members}
	c.set(t, "both", f)
	e.vote(t, c.client)
	e.vote(t, c.other)
	if n := e.sent(t, c.router, 60); n < 60 {
		t.Errorf("before a retry %d of 60 connections are sent far away, want none", 60-n)
	}
	e.retryIsDue(t)
	e.sent(t, c.router, 1) // as a retry
	e.vote(t, c.other)
	e.avoids(t, "once a retry has failed", c.router, true)
}

// Whoever has a /64 has as many addresses as he likes. Neighbours by IPv4 are clients
// of their own.
func aNetworkOfIPv6IsOneClient(t *testing.T, c cast) {
	e := hold(t, c)
	client := netip.MustParseAddr("198.51.100.128")
	if c.client.Is6() {
		client = netip.MustParseAddr("2001:db8:c:1::1")
	}
	for range 6 {
		client = client.Next()
		e.vote(t, client)
	}
	e.avoids(t, "a client of another network", c.router, c.client.Is4())
	e.avoids(t, "a neighbour", client.Next(), true)
}

func theClientThatFailedLastLeavesTheRetryToOthers(t *testing.T, c cast) {
	e := hold(t, c)
	e.vote(t, c.client)
	e.vote(t, c.other)
	e.write(t, e.bad, "retries", 5) // half a minute between two
	e.retryIsDue(t)
	if n := e.sent(t, c.other, 60); n != 0 {
		t.Errorf("the client that failed last has %d of 60 connections as a retry, want none", n)
	}
	if n := e.sent(t, c.router, 60); n != 1 {
		t.Errorf("another client has %d of 60 connections as a retry, want one", n)
	}
}

// Both backends have long been there when one is ejected, twice.
func clientsAloneKeepNoBackendSlow(t *testing.T, c cast) {
	e := hold(t, c)
	f := c.frontend(lb.LoadBalancerIP, at(c.vip, 80), e.bad, e.good)
	f.SlowStart = 3600
	c.set(t, "both", f)
	ejected := func() {
		e.write(t, e.bad, "taken_at", healthTime(t)-2*second)
		e.vote(t, c.client)
		e.vote(t, c.other)
		e.avoids(t, "by the word of two", c.router, true)
	}
	for _, b := range []netip.AddrPort{e.bad, e.good} {
		e.write(t, b, "slow_start_from", healthTime(t)-7200*second)
	}
	ejected()
	e.takes(t, c.router)
	if n := e.sent(t, c.router, 120); n < 30 {
		t.Errorf("%d of 120 connections go to a backend that clients alone ejected, want about half", n)
	}
	ejected()
	e.retryIsDue(t)
	e.sent(t, c.router, 20) // one of them is as a retry
	e.vote(t, c.other)
	e.takes(t, c.router)
	if n := e.sent(t, c.router, 120); n > 20 {
		t.Errorf("%d of 120 connections go to a backend that a retry found gone, want one in 32", n)
	}
}

func theBestOfTheOthersIsTaken(t *testing.T, c cast) {
	e := &election{cast: c, bad: at(c.local, 8080), port: 40000}
	open := []uint64{0, 5, 3, 9, 3, 7}
	var backends []netip.AddrPort
	for i := range open {
		backends = append(backends, at(c.local, 8080+uint16(i)))
	}
	f := c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backends...)
	f.Algorithm = lb.LC
	c.set(t, "web", f)
	for i, n := range open {
		e.write(t, backends[i], "in_flight", n)
	}
	const ejectedForAll = 2
	e.write(t, e.bad, "ejection", ejectedForAll)
	e.write(t, e.bad, "next_retry", healthTime(t)+long)
	got := map[netip.AddrPort]int{}
	for range 40 {
		e.port++
		got[c.comesOut(t, "what begins", in, uplink, c.packet(at(c.client, e.port), at(c.vip, 80), 0)).dst]++
	}
	if got[backends[2]] == 0 || got[backends[2]]+got[backends[4]] != 40 {
		t.Errorf("the backends get %v", got)
	}
	e.write(t, e.bad, "ejection", 0)
	e.write(t, e.bad, "in_flight", 4)
	for port := range uint16(20) {
		to := c.comesOut(t, "what begins", in, uplink, c.packet(at(c.client, 50000+port), at(c.vip, 80), 0)).dst
		if to != backends[2] && to != backends[4] {
			t.Errorf("where none is ejected %s is the best", to)
		}
	}
}

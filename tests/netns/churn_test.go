package netns_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// churn is a Service that changes all the time, with those who connect to it.
type churn struct {
	tcp, udp netip.AddrPort
	backends []*backend // that take connections; datagrams go nowhere

	mu sync.Mutex
	// allowed are, at each moment, the backends that a connection may come to: a
	// bit for each. During a change it is those from before it, too.
	allowed []uint
	made    [2]int // connections of TCP and of UDP
	wrong   []string
}

// allow begins the next moment.
func (c *churn) allow(backends uint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed = append(c.allowed, backends)
}

// count returns how many connections were made, of TCP and of UDP.
func (c *churn) count() (tcp, udp int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made[0], c.made[1]
}

// now returns the present moment.
func (c *churn) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.allowed) - 1
}

// note checks where a connection came to that was made since a moment.
func (c *churn) note(typ int, since int, to netip.Addr, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[typ-unix.SOCK_STREAM]++
	if err != nil {
		c.wrong = append(c.wrong, err.Error())
		return
	}
	var may uint
	for _, backends := range c.allowed[since:] {
		may |= backends
	}
	for i, b := range c.backends {
		if b.at.Addr == to && may&(1<<i) != 0 {
			return
		}
	}
	c.wrong = append(c.wrong, fmt.Sprintf("a connection came to %s, and since it began the Service had only %b", to, may))
}

// connect opens a socket. Its own address is the backend's, as with everything on
// one machine.
func (c *churn) connect(tb testing.TB, typ int) *socket {
	vip := c.tcp
	if typ == unix.SOCK_DGRAM {
		vip = c.udp
	}
	since := c.now()
	fd, err := unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, 0)
	s := &socket{tb, fd, inet}
	if err == nil {
		err = s.connect(vip)
	}
	if err != nil {
		c.note(typ, since, netip.Addr{}, fmt.Errorf("connect: %w", err))
		return s
	}
	c.note(typ, since, s.local().Addr(), nil)
	if peer, err := s.peer(); err != nil || peer != vip {
		c.note(typ, since, netip.Addr{}, fmt.Errorf("getpeername says %v (%v), want %v", peer, err, vip))
	}
	return s
}

// client connects until it is told to stop, and keeps some connections open.
func (c *churn) client(tb testing.TB, stop <-chan struct{}) {
	var held [256]*socket // for some changes
	for i := 0; ; i++ {
		select {
		case <-stop:
			for _, s := range held[:min(i, len(held))] {
				s.close()
			}
			return
		default:
		}
		place := &held[i%len(held)]
		if *place != nil {
			(*place).close()
		}
		*place = c.connect(tb, []int{unix.SOCK_STREAM, unix.SOCK_DGRAM}[i%2])
	}
}

// frontends are those of the Service when it has some of the backends.
func (c *churn) frontends(a lb.Algorithm, some uint, weight func() uint32) (out []lb.Frontend) {
	for _, vip := range []lb.AddrPort{{Addr: c.tcp.Addr(), Port: c.tcp.Port(), Protocol: lb.TCP}, {Addr: c.udp.Addr(), Port: c.udp.Port(), Protocol: lb.UDP}} {
		v := lb.View{}
		for i, b := range c.backends {
			if some&(1<<i) != 0 {
				v.Backends = append(v.Backends, lb.AddrPort{Addr: b.at.Addr, Port: b.at.Port, Protocol: vip.Protocol})
				v.Weights = append(v.Weights, weight())
			}
		}
		out = append(out, lb.Frontend{AddrPort: vip, Port: vip.Protocol.String(), Policy: lb.Policy{Algorithm: a}, Views: [lb.NumViews]lb.View{lb.Internal: v, lb.External: v}, Members: v.Backends})
	}
	return out
}

// change changes backends and weights at random, and once in four times the
// algorithm to any other.
func (c *churn) change(n *node, r *rand.Rand, a lb.Algorithm) {
	if r.IntN(4) == 0 {
		a = lb.Random + lb.Algorithm(r.IntN(int(lb.Latency)))
	}
	before := c.allowed[len(c.allowed)-1]
	some := 1 + uint(r.IntN(1<<len(c.backends)-1))
	c.allow(before | some)
	n.set("churn", c.frontends(a, some, func() uint32 { return 1 + uint32(r.IntN(5)) })...)
	c.allow(some)
	if r.IntN(2) == 0 {
		n.sweep()
	}
}

// wantIdle checks that nothing is in flight to any backend that the map has.
func (n *node) wantIdle(t *testing.T) {
	t.Helper()
	n.inspect(func(i *datapath.Reader) error {
		for id, l := range i.Backends() {
			if l.InFlight != 0 {
				t.Errorf("all sockets are closed, and of backend %d are in flight %d", id, l.InFlight)
			}
		}
		return nil
	})
}

// No connection fails, whatever changes. None comes to a backend that had gone
// before it began: a program that starts after a change sees it, so there is not
// even a grace period to wait for. In the end nothing is in flight.
func TestServicesChangeInEveryWayWhileClientsConnect(t *testing.T) {
	cfg := config(t)
	cfg.Sizes.Frontends, cfg.Sizes.Slots, cfg.Sizes.Backends, cfg.Sizes.Services = 16, 1<<15, 64, 16
	n := mustNodeOf(t, cfg)
	c := &churn{tcp: at("10.96.7.7:80"), udp: at("10.96.7.7:53")}
	for i := range 8 {
		c.backends = append(c.backends, mustServe(t, fmt.Sprintf("10.244.7.%d:80/TCP", i+1)))
	}
	every := uint(1)<<len(c.backends) - 1
	for a := lb.Random; a <= lb.Latency; a++ {
		t.Run(a.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(a), 5))
			c.allowed, c.made, c.wrong = []uint{every}, [2]int{}, nil
			n.set("churn", c.frontends(a, every, func() uint32 { return 1 })...)
			stop, clients := make(chan struct{}), sync.WaitGroup{}
			for range 2 {
				clients.Go(func() { c.client(t, stop) })
			}
			changes, tcp, udp := 0, 0, 0
			for end := time.Now().Add(time.Second); time.Now().Before(end) || tcp < 1000; changes++ {
				c.change(n, r, a)
				tcp, udp = c.count()
			}
			close(stop)
			clients.Wait()
			t.Logf("%d connections of TCP and %d of UDP during %d changes", tcp, udp, changes)
			if len(c.wrong) > 0 {
				t.Errorf("%d went wrong, the first: %q", len(c.wrong), c.wrong[:min(5, len(c.wrong))])
			}
			n.wantIdle(t)
			n.sweep()
		})
	}
}

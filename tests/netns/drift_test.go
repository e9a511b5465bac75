package netns_test

import (
	"errors"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// connections returns how many connections a test of drift makes:
// $HEADGATE_CONNECTIONS, or so many that it takes seconds.
func connections(tb testing.TB) int64 {
	tb.Helper()
	text := os.Getenv("HEADGATE_CONNECTIONS")
	if text == "" {
		return 50_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// coming are clients that come and go until so many connections have been made.
type coming struct {
	left    atomic.Int64
	refused atomic.Int64
	mu      sync.Mutex
	wrong   error // the first thing that went wrong
}

// Of eight connections, by what they are.
var mixture = [8]struct {
	to  string
	typ int
}{
	{"10.96.7.7:80", unix.SOCK_STREAM}, {"10.96.7.7:80", unix.SOCK_STREAM}, {"10.96.7.7:80", unix.SOCK_STREAM},
	{spreadAddr, unix.SOCK_DGRAM}, {spreadAddr, unix.SOCK_DGRAM}, {spreadAddr, unix.SOCK_DGRAM},
	{"10.96.7.8:80", unix.SOCK_STREAM}, // nobody is there
	{"[fd00:96::7]:80", unix.SOCK_STREAM},
}

const spreadAddr = "10.96.7.7:53"

// client comes and goes, with some connections open at any time.
func (c *coming) client(tb testing.TB) {
	var open [64]*socket
	for i := 0; c.left.Add(-1) >= 0; i++ {
		place := &open[i%len(open)]
		if *place != nil {
			(*place).close()
		}
		m, k := mixture[i%len(mixture)], inet
		to := netip.MustParseAddrPort(m.to)
		if to.Addr().Is6() {
			k = inet6
		}
		fd, err := unix.Socket(k.family, m.typ|unix.SOCK_CLOEXEC, 0)
		s := &socket{tb, fd, k}
		if err == nil {
			err = s.connect(to)
		}
		if m.to == "10.96.7.8:80" && errors.Is(err, unix.ECONNREFUSED) {
			c.refused.Add(1)
			err = nil
		}
		if err != nil {
			c.mu.Lock()
			c.wrong = errors.Join(c.wrong, err)
			c.mu.Unlock()
			c.left.Store(0)
		}
		*place = s
	}
	for _, s := range open {
		if s != nil {
			s.close()
		}
	}
}

// restart takes the node over as another process does, or replaces all programs and
// some maps.
func (n *node) restart(upgrade bool) *node {
	n.tb.Helper()
	n.dp.Close()
	if upgrade {
		n.cfg.SocketEntries ^= 1<<12 | 1<<13
	}
	return mustNodeOf(n.tb, n.cfg)
}

// come makes so many connections while agents come and go, and returns how many of
// these there were.
func (c *coming) come(n *node, total int64, upgrade bool) (*node, int) {
	n.tb.Helper()
	var clients sync.WaitGroup
	c.left.Store(total)
	for range 2 {
		clients.Go(func() { c.client(n.tb) })
	}
	restarts := 0
	for last := total; c.left.Load() > 0; time.Sleep(time.Millisecond) {
		if left := c.left.Load(); last-left >= min(total/5, 25_000) {
			n, last = n.restart(upgrade), left
			restarts++
		}
	}
	clients.Wait()
	return n, restarts
}

// Connections of TCP and UDP over both families, a part of which is refused. What
// counts them is exact, whatever agents do. Only where programs are replaced both
// generations count for a moment; that is corrected at once, as far as it can be told
// from what comes and goes, and the rest by the recount that an agent makes every half
// a minute.
func TestNoDriftOverManyConnectionsAndRestarts(t *testing.T) {
	testenv.NeedStorageIterators(t)
	n, total := mustNode(t), connections(t)/2
	web := []*backend{mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP"), mustServe(t, "10.244.0.3:8080/TCP")}
	n.set("web", frontend("10.96.7.7:80/TCP", web...), frontend("[fd00:96::7]:80/TCP", mustServe(t, "[fd00:244::1]:8080/TCP")))
	n.set("dead", frontend("10.96.7.8:80/TCP", nobody(t, "10.244.0.4:8080/TCP"), nobody(t, "10.244.0.5:8080/TCP")))
	n.set("spread", spreadOver(lb.P2C, silent(4)))
	held := connectMany(t, 100)
	for range 20 {
		s, _ := dialTCP(t, inet, at("10.96.7.7:80"))
		held = append(held, s)
	}
	for _, upgrade := range []bool{false, true} {
		c, began, restarts := coming{}, time.Now(), 0
		n, restarts = c.come(n, total, upgrade)
		drift := n.allInFlight() - len(held)
		t.Logf("%d connections, %d of them refused, and %d restarts (upgrades: %v) in %s: drift %d",
			total, c.refused.Load(), restarts, upgrade, time.Since(began).Round(time.Millisecond), drift)
		if c.wrong != nil || restarts == 0 || c.refused.Load() < total/10 {
			t.Errorf("not all was as it should be: %v", c.wrong)
		}
		if upgrade {
			if _, err := n.dp.Recount(); err != nil {
				t.Fatal(err)
			}
			drift = n.allInFlight() - len(held)
		}
		if drift != 0 {
			t.Errorf("%d in flight, want the %d that are held", drift+len(held), len(held))
		}
	}
	closeAll(held)
	n.wantIdle(t)
}

// allInFlight returns what is in flight to all backends.
func (n *node) allInFlight() (sum int) {
	n.tb.Helper()
	n.inspect(func(i *datapath.Reader) error {
		for _, l := range i.Backends() {
			sum += int(l.InFlight)
		}
		return nil
	})
	return sum
}

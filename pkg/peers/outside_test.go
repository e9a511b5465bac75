package peers

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// edge is a prober that is not run, with what it has told.
type edge struct {
	*Prober
	told   map[string]plan.Node
	routes map[string]string
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{routes: map[string]string{}}
	e.Prober = New(Config{
		Filtered: func(netip.Addr) string { return "" },
		Answer:   func(time.Duration) {},
		Here:     "edge-a",
		MTU:      func(netip.Addr) uint32 { return 1500 },
		Counts:   func() map[netip.Addr]Counts { return nil },
		Former:   func() map[netip.Addr]plan.Peer { return nil },
		Route: func(to netip.Addr) netip.Addr {
			from, _ := netip.ParseAddr(e.routes[to.String()])
			return from
		},
		Notify: func(_ string, all map[string]plan.Node) { e.told = all },
		Report: func([]Status) {},
	})
	return e
}

// serves says which backends a Service has, and looks what is told.
func (e *edge) serves(port uint16, backends ...string) {
	f := lb.Frontend{AddrPort: lb.AddrPort{Addr: netip.MustParseAddr("203.0.113.10"), Port: port, Protocol: lb.TCP}, Carried: true, Homes: map[lb.AddrPort]string{}}
	for _, b := range backends {
		at := netip.MustParseAddrPort(b)
		f.Homes[lb.AddrPort{Addr: at.Addr(), Port: at.Port(), Protocol: lb.TCP}] = at.Addr().String()
	}
	e.SetFrontends(lb.ServiceName{Namespace: "default", Name: "web"}, []lb.Frontend{f})
	e.look()
}

func (e *edge) look() {
	e.settle()
	e.tell()
}

func (e *edge) problems() string {
	var lines []string
	for _, p := range e.Problems() {
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

// An edge needs no Node of its own: routes say from where it carries.
func TestABackendOutsideIsAPeerByItsAddress(t *testing.T) {
	e := newEdge(t)
	e.routes["192.0.2.7"], e.routes["2001:db8::7"] = "192.0.2.1", "2001:db8::1"
	e.serves(80, "192.0.2.7:80", "[2001:db8::7]:80")
	for theirs, ours := range e.routes {
		n := e.told[theirs]
		if !n.Outside || !n.Usable || n.Silent || n.Theirs.String() != theirs || n.Ours.String() != ours || n.MTU != 1500 || len(n.Addrs) != 0 {
			t.Errorf("%s is told as %v, carrying from %v; want it usable, outside, from %s, and nothing taken from it", theirs, n.Peer, n.Addrs, ours)
		}
	}
	if e.problems() != "" {
		t.Errorf("all is well, and said is %s", e.problems())
	}
	e.serves(80, "192.0.2.7:80")
	if len(e.told) != 1 {
		t.Errorf("told are %v once one backend is left", e.told)
	}
}

func TestABackendOutsideFollowsItsRoute(t *testing.T) {
	e := newEdge(t)
	e.serves(80, "192.0.2.7:80")
	if len(e.told) != 0 || !strings.Contains(e.problems(), "no route leads there") {
		t.Errorf("without a route told is %v, said is %q", e.told, e.problems())
	}
	now := time.Now()
	for _, ours := range []string{"192.0.2.1", "192.0.2.2"} {
		e.routes["192.0.2.7"] = ours
		now = now.Add(calm)
		e.tick(now)
		e.tell()
		if n := e.told["192.0.2.7"]; n.Ours.String() != ours || e.problems() != "" {
			t.Errorf("with a route from %s told is %v, said is %q", ours, n.Peer, e.problems())
		}
	}
	delete(e.routes, "192.0.2.7") // as while a link is down
	e.tick(now.Add(calm))
	e.tell()
	if n := e.told["192.0.2.7"]; n.Ours.String() != "192.0.2.2" {
		t.Errorf("while the route is gone told is %v, want what was told: packets come with the route", n.Peer)
	}
}

func TestABackendOutsideHasThePortOfTheService(t *testing.T) {
	e := newEdge(t)
	e.routes["192.0.2.7"] = "192.0.2.1"
	e.serves(80, "192.0.2.7:8080")
	if want := "the backend 192.0.2.7 gets connections to port 80 by SNAT"; !strings.Contains(e.problems(), want) || !strings.Contains(e.problems(), "listens on port 8080") {
		t.Errorf("said is %q, want %q", e.problems(), want)
	}
}

// Where agents run on backends, too, one folder for all needs no more than their Nodes.
func TestAnEndpointAtANodesAddressIsThatNode(t *testing.T) {
	e := newEdge(t)
	e.routes["127.0.0.2"] = "127.0.0.1"
	e.serves(80, "127.0.0.2:8080")
	if !e.told["127.0.0.2"].Outside {
		t.Fatalf("told is %v before there is a Node", e.told)
	}
	e.SetNodes(map[string]*lb.Node{"edge-a": nodeAt("127.0.0.1"), "web-1": nodeAt("127.0.0.2")})
	e.look()
	if n, is := e.told["web-1"]; !is || n.Outside || n.Usable || len(e.told) != 2 || !e.peers["web-1"].isHome {
		t.Errorf("told is %v, want the Node, which is asked", e.told)
	}
	if !strings.Contains(e.problems(), "backends on Node web-1 get new connections by SNAT from Node edge-a: has not answered yet") {
		t.Errorf("said is %q", e.problems())
	}
	e.SetNodes(map[string]*lb.Node{"web-1": nil})
	e.look()
	if !e.told["127.0.0.2"].Outside {
		t.Errorf("told is %v without the Node", e.told)
	}
}

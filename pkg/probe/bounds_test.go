package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

func TestSomeAddressesAreNeverAsked(t *testing.T) {
	p := New(Config{Allowed: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8::/32")}})
	node := map[netip.Addr]bool{netip.MustParseAddr("192.0.2.1"): true}
	p.SetNode(node)
	clear(node) // is the caller's
	p.SetNodeAddresses(map[string][]netip.Addr{"node-b": {netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.8")}, "node-c": {netip.MustParseAddr("198.51.100.8")}})
	p.SetNodeAddresses(map[string][]netip.Addr{"node-b": {netip.MustParseAddr("198.51.100.9")}})
	p.SetServiceCIDRs([]netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")})
	p.SetFrontends(name("web"), []lb.Frontend{{AddrPort: lb.AddrPort{Addr: netip.MustParseAddr("203.0.113.80"), Port: 80, Protocol: lb.TCP}}})
	p.SetFrontends(name("db"), probing(lb.Probe{Kind: lb.TCPProbe}, backendAt(t, "198.51.100.1:5432")))
	p.replan()
	for addr, why := range map[string]string{
		"198.51.100.1": "", "2001:db8::1": "",
		"192.0.2.1": "this node", "198.51.100.7": "", "198.51.100.8": "another node", "198.51.100.9": "another node", "10.96.0.1": "Services", "10.111.255.255": "Services", "203.0.113.80": "Services",
		"127.0.0.1": "no unicast", "127.1.2.3": "no unicast", "::1": "no unicast", "169.254.169.254": "no unicast", "fe80::1": "no unicast",
		"224.0.0.1": "no unicast", "ff02::1": "no unicast", "0.0.0.0": "no unicast", "255.255.255.255": "no unicast", "::ffff:198.51.100.1": "no unicast",
		"2001:db8::1%eth0": "no unicast", "2001:db9::1": "prefixes",
	} {
		if got := p.refuse(netip.MustParseAddr(addr)); (got == "") != (why == "") || !strings.Contains(got, why) {
			t.Errorf("%s: %q, want %q", addr, got, why)
		}
	}
	p.SetNodeAddresses(map[string][]netip.Addr{"node-b": nil})
	if got := p.refuse(netip.MustParseAddr("198.51.100.9")); got != "" {
		t.Errorf("an address of a node that is gone: %s", got)
	}
	p.SetFrontends(name("web"), nil)
	p.replan()
	if got := p.refuse(netip.MustParseAddr("203.0.113.80")); got != "" {
		t.Errorf("an address that no Service has any more: %s", got)
	}
	if len(p.nodes) != 1 || len(p.serves) != 1 {
		t.Errorf("what is gone takes room: Nodes %v, Services %v", p.nodes, p.serves)
	}
	if got := New(Config{Allowed: []netip.Prefix{}}).refuse(netip.MustParseAddr("198.51.100.1")); !strings.Contains(got, "prefixes") {
		t.Errorf("without a prefix that may be asked: %q", got)
	}
}

func name(n string) lb.ServiceName { return lb.ServiceName{Namespace: "default", Name: n} }

func TestWhatIsRefusedIsAProblemOfItsServiceUntilItIsNot(t *testing.T) {
	problems := make(chan []lb.Problem, 10)
	p := New(Config{Notify: func(context.Context, Verdict) {}, Problems: func(all []lb.Problem) { problems <- all }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	p.SetFrontends(name("web"), probing(lb.Probe{Kind: lb.HTTPProbe, Path: "/", Interval: time.Hour}, backendAt(t, "127.0.0.1:80")))
	select {
	case all := <-problems:
		t.Errorf("before the node is known: %v", all)
	case <-time.After(50 * time.Millisecond):
	}
	p.SetNode(nil)
	all := nextProblems(t, problems)
	if len(all) != 1 || all[0].Object != "Service default/web" || !strings.Contains(all[0].Error(), "headgate.dev/probe") ||
		!strings.Contains(all[0].Reason, "127.0.0.1") || all[0].Remedy == "" {
		t.Errorf("problems: %v", all)
	}
	p.SetFrontends(name("other"), probing(lb.Probe{Kind: lb.TCPProbe, Interval: time.Hour}, backendAt(t, "198.51.100.1:80")))
	p.SetFrontends(name("web"), nil)
	if all := nextProblems(t, problems); len(all) != 0 {
		t.Errorf("problems after it is gone: %v", all)
	}
	for why, say := range map[string]func(ours bool){
		"another node": func(ours bool) {
			p.SetNodeAddresses(map[string][]netip.Addr{"node-b": map[bool][]netip.Addr{true: {netip.MustParseAddr("198.51.100.1")}}[ours]})
		},
		"Services": func(ours bool) {
			p.SetServiceCIDRs(map[bool][]netip.Prefix{true: {netip.MustParsePrefix("198.51.100.0/24")}}[ours])
		},
	} {
		say(true)
		if all := nextProblems(t, problems); len(all) != 1 || !strings.Contains(all[0].Reason, why) {
			t.Errorf("problems as its address turns out to be of %s: %v", why, all)
		}
		say(false)
		if all := nextProblems(t, problems); len(all) != 0 {
			t.Errorf("problems as it is not any more: %v", all)
		}
	}
}

func nextProblems(t *testing.T, problems chan []lb.Problem) []lb.Problem {
	t.Helper()
	select {
	case all := <-problems:
		return all
	case <-time.After(20 * time.Second):
		t.Fatal("no problems are said")
		return nil
	}
}

// Many Services may name the same target: it is asked as if one did.
func TestATargetIsAskedOnceHoweverManyServicesNameIt(t *testing.T) {
	w := start(t, 1)
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ready" {
			asked.Add(1)
		}
	}))
	defer s.Close()
	const services, interval = 50, 200 * time.Millisecond
	began := time.Now()
	for i := range services {
		b := backendAt(t, s.URL)
		if i%2 == 1 { // another backend by the same target
			b.Port = uint16(i)
		}
		w.set(fmt.Sprint(i), lb.Probe{Kind: lb.HTTPProbe, Path: "/ready", Port: backendAt(t, s.URL).Port, Interval: interval}, b)
	}
	told := map[lb.AddrPort]bool{}
	for len(told) < 1+services/2 {
		told[w.next(t).Backend] = true
	}
	time.Sleep(5 * interval)
	if most := int64(time.Since(began)/interval) + 2; asked.Load() == 0 || asked.Load() > most {
		t.Errorf("asked %d times, at most %d were due", asked.Load(), most)
	}
}

// A namespace that wants more than its share waits, is told so, and does not make
// others wait.
func TestANamespaceHasABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{})
		p.SetNode(nil)
		for i := range 100 {
			b := lb.AddrPort{Addr: netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), Port: 80, Protocol: lb.TCP}
			p.SetFrontends(lb.ServiceName{Namespace: "greedy", Name: fmt.Sprint(i)}, probing(lb.Probe{Kind: lb.TCPProbe, Interval: time.Second}, b))
		}
		shared := target{kind: lb.TCPProbe, at: netip.MustParseAddrPort("198.51.100.0:80")}
		p.SetFrontends(name("web"), probing(lb.Probe{Kind: lb.TCPProbe, Interval: time.Second}, backendAt(t, "198.51.100.0:80")))
		jobs, _, problems := p.replan()
		if len(jobs) != 100 || len(problems) != 100 || !strings.Contains(problems[0].Reason, "namespace greedy are 100 requests per second, and may be 10") {
			t.Fatalf("%d jobs, %d problems such as %v; want 100 of both, of namespace greedy", len(jobs), len(problems), problems[:1])
		}
		began, n := time.Now(), 0
		for i := range 50 {
			at := target{kind: lb.TCPProbe, at: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i + 1)}), 80)}
			if !p.wait(t.Context(), at) {
				t.Fatal("not asked at all")
			}
			p.replan() // a change is no new budget
			n++
		}
		if took := time.Since(began); took < 4500*time.Millisecond || took > 6*time.Second {
			t.Errorf("%d requests of a namespace took %v, want about 5 s at 10 per second", n, took)
		}
		for range 20 { // a map has no order
			if p.budget.of(p.jobs[shared].namespaces) != p.budget.limiters["default"] {
				t.Fatal("a target that another namespace names, too, waits for the one that has least left")
			}
		}
		began = time.Now()
		if !p.wait(t.Context(), shared) || time.Since(began) != 0 {
			t.Errorf("a target that another namespace names, too, waited %v", time.Since(began))
		}
	})
}

// What is asked less often than it should be is not forgotten in between.
func TestABudgetIsKeptToAndVerdictsHoldUntilTheNextOne(t *testing.T) {
	atAnyLoad(t, 1, func(t *testing.T, w watched, a *answers) {
		a.set("/", true)
		for i := range 100 {
			w.set(fmt.Sprint(i), httpProbe("/"), backendAt(t, fmt.Sprintf("198.51.100.%d:80", i)))
		}
		began := time.Now()
		for time.Since(began) < 100*time.Second {
			v := w.next(t)
			if least := 3 * interval; v.For < least {
				t.Fatalf("a verdict holds for %v, want %v at least", v.For, least)
			}
			if least := 25 * time.Second; time.Since(began) > 30*time.Second && v.For < least {
				t.Fatalf("a verdict of a target that is asked every 10 s holds for %v", v.For)
			}
		}
		if asked := a.set("/", true); asked < 950 || asked > 1002 {
			t.Errorf("100 targets of a namespace were asked %d times in 100 s, want 10 times a second", asked)
		}
	})
}

func TestATargetIsAskedAsOftenAsOneOfItsServicesWants(t *testing.T) {
	p := New(Config{})
	p.SetNode(nil)
	for i, interval := range []time.Duration{5 * time.Second, 2 * time.Second, 3 * time.Second} {
		p.SetFrontends(name(fmt.Sprint(i)), probing(lb.Probe{Kind: lb.TCPProbe, Interval: interval}, backendAt(t, "198.51.100.1:80")))
	}
	p.SetFrontends(name("often"), probing(lb.Probe{Kind: lb.TCPProbe, Interval: time.Millisecond}, backendAt(t, "198.51.100.2:80")))
	jobs, _, _ := p.replan()
	for at, want := range map[string]time.Duration{"198.51.100.1:80": 2 * time.Second, "198.51.100.2:80": time.Second} {
		if got := jobs[target{kind: lb.TCPProbe, at: netip.MustParseAddrPort(at)}].interval; got != want {
			t.Errorf("%s is asked every %v, want %v", at, got, want)
		}
	}
}

func TestAllNamespacesTogetherHaveTheBudgetOfTheNode(t *testing.T) {
	p := New(Config{})
	p.SetNode(nil)
	for i := range 50 {
		b := lb.AddrPort{Addr: netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), Port: 80, Protocol: lb.TCP}
		p.SetFrontends(lb.ServiceName{Namespace: fmt.Sprint(i), Name: "web"}, probing(lb.Probe{Kind: lb.TCPProbe, Interval: time.Second}, b))
	}
	p.replan()
	total := 0.0
	for _, l := range p.budget.limiters {
		total += float64(l.Limit())
	}
	if len(p.budget.limiters) != 50 || total > nodeRate+0.001 {
		t.Errorf("%d namespaces may make %v requests per second, want at most %d", len(p.budget.limiters), total, nodeRate)
	}
}

// A request is a GET by a name of its own for one connection, and no more of an answer
// is read than its header.
func TestARequestIsSmallAndSoIsWhatIsReadOfTheAnswer(t *testing.T) {
	var request string
	var wrote atomic.Int64
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(over)
		request = fmt.Sprint(r.Method, r.Header, r.Close)
		for r.Context().Err() == nil && wrote.Load() < 1<<30 {
			n, err := w.Write(make([]byte, 64<<10))
			wrote.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer s.Close()
	if err := ask(t.Context(), targetOf(backendAt(t, s.URL), lb.Probe{Kind: lb.HTTPProbe, Path: "/"}), 10*time.Second); err != nil {
		t.Error(err)
	}
	<-over
	if request != "GETmap[Connection:[close] User-Agent:[headgate-probe]] true" || wrote.Load() >= 1<<30 {
		t.Errorf("asked by %s, and %d bytes of the answer were taken", request, wrote.Load())
	}
}

func TestALongHeaderIsNoAnswer(t *testing.T) {
	for size, well := range map[int]bool{4 << 10: true, 64 << 10: false} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Long", strings.Repeat("b", size))
		}))
		err := ask(t.Context(), targetOf(backendAt(t, s.URL), lb.Probe{Kind: lb.HTTPProbe, Path: "/"}), 10*time.Second)
		if (err == nil) != well {
			t.Errorf("a header of %d bytes: %v", size, err)
		}
		s.Close()
	}
}

// TestMain has an environment with a proxy, which is read once.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "", "no_proxy": ""} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(testenv.Main(m))
}

// A proxy is never asked for 127.0.0.1, hence the other name of this machine.
func TestNoProxyIsAsked(t *testing.T) {
	var status atomic.Int64
	status.Store(http.StatusOK)
	at := web(t, &status)
	at.Addr = netip.IPv4Unspecified()
	if err := ask(t.Context(), targetOf(at, lb.Probe{Kind: lb.HTTPProbe, Path: "/healthz"}), 10*time.Second); err != nil {
		t.Error(err)
	}
}

// Which addresses are the node's own is not known at first: until then nothing is asked.
func TestNothingIsAskedBeforeTheNodesAddressesAreKnown(t *testing.T) {
	p := New(Config{})
	p.SetFrontends(name("web"), probing(lb.Probe{Kind: lb.TCPProbe, Interval: time.Second}, backendAt(t, "198.51.100.1:80")))
	if jobs, _, _ := p.replan(); len(jobs) > 0 {
		t.Errorf("%d targets are asked", len(jobs))
	}
	p.SetNode(nil)
	if jobs, _, _ := p.replan(); len(jobs) != 1 {
		t.Errorf("%d targets are asked afterwards, want one", len(jobs))
	}
}

// Who asks for probes of backends outside has them asked in the way of clients, too, where that can be: each is
// bad while either finds it so.
func TestBackendsOutsideAreAskedInTheWayOfClients(t *testing.T) {
	frontend := lb.AddrPort{Addr: netip.MustParseAddr("203.0.113.10"), Port: 80, Protocol: lb.TCP}
	outside, elsewhere := backendAt(t, "198.51.100.1:80"), backendAt(t, "198.51.100.2:8080") // its port is another
	frontends := probing(lb.Probe{Kind: lb.HTTPProbe, Path: "/", Interval: time.Second}, outside, elsewhere)
	frontends[0].AddrPort, frontends[0].Carried = frontend, true
	frontends[0].Homes = map[lb.AddrPort]string{outside: "198.51.100.1", elsewhere: "198.51.100.2"}
	for _, c := range []struct {
		name      string
		mayCarry  bool
		node      netip.Addr // an address of it
		protocol  lb.Protocol
		kind      lb.FrontendKind
		through   int
		complains bool
	}{
		{name: "as it should be", mayCarry: true, kind: lb.LoadBalancerIP, through: 1},
		{name: "no raw sockets", kind: lb.LoadBalancerIP, complains: true},
		{name: "the address is on the node", mayCarry: true, kind: lb.LoadBalancerIP, node: frontend.Addr},
		{name: "datagrams", mayCarry: true, kind: lb.LoadBalancerIP, protocol: lb.UDP},
		{name: "a ClusterIP", mayCarry: true, kind: lb.ClusterIP},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := New(Config{Failures: 1, MayCarry: c.mayCarry})
			p.SetNode(map[netip.Addr]bool{c.node: true})
			all := slices.Clone(frontends)
			all[0].Kind = c.kind
			if c.protocol != 0 {
				all[0].Protocol = c.protocol
			}
			p.SetFrontends(lb.ServiceName{Namespace: "default", Name: "web"}, all)
			jobs, _, problems := p.replan()
			through := 0
			for to, job := range jobs {
				if to.frontend.IsValid() {
					through++
					if to.frontend != netip.AddrPortFrom(frontend.Addr, 80) || to.at.Addr() != outside.Addr || len(job.backends) != 1 || !job.backends[outside] {
						t.Errorf("%+v is asked for %v", to, job.backends)
					}
				}
			}
			if through != c.through || len(jobs) != 2+c.through || (len(problems) > 0) != c.complains {
				t.Errorf("%d of %d targets are asked in the way of clients, with the problems %v", through, len(jobs), problems)
			}
		})
	}
}

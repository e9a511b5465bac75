package netns_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// eject says of a backend what a probe has found out.
func (n *node) eject(b *backend, eject bool, noRetryFor time.Duration) {
	n.tb.Helper()
	known, err := n.dp.Eject(b.at, eject, noRetryFor)
	if err != nil || !known {
		n.tb.Fatalf("eject %s: known %v, %v", b.at, known, err)
	}
}

func TestABackendThatAProbeEjectsIsAvoidedUntilAProbeClearsIt(t *testing.T) {
	n := healthNode(t)
	bad, good := mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")
	n.set("web", frontend("10.96.0.1:80/TCP", bad, good))
	n.eject(bad, true, time.Minute)
	time.Sleep(1100 * time.Millisecond) // a retry would be due otherwise
	if took, _ := connects(t, 100, at("10.96.0.1:80")); took[bad.name()] > 0 {
		t.Errorf("connections went to %v, want none to %s", took, bad.name())
	}
	n.eject(bad, false, 0)
	if took, _ := connects(t, 200, at("10.96.0.1:80")); took[bad.name()] < 50 {
		t.Errorf("connections went to %v, want about half of 200 to %s", took, bad.name())
	}
}

// Of three ejected ones among four backends the first ones are avoided, as many as may be.
// The others take connections, which clears them.
func TestTheKernelLimitsWhatProbesCanTakeOut(t *testing.T) {
	var backends []*backend
	for i := range 4 {
		backends = append(backends, mustServe(t, fmt.Sprintf("10.244.0.%d:8080/TCP", i+1)))
	}
	for _, c := range []struct{ percent, avoided uint32 }{{25, 1}, {50, 2}, {75, 3}} {
		cfg := config(t)
		cfg.EjectAfter, cfg.MaxEjected = 2, c.percent
		n := mustNodeOf(t, cfg)
		n.set("web", frontend("10.96.0.1:80/TCP", backends...))
		for _, b := range backends[:3] {
			n.eject(b, true, time.Minute)
		}
		took, refused := connects(t, 200, at("10.96.0.1:80"))
		for i, b := range backends {
			if avoided := i < int(c.avoided); avoided != (took[b.name()] == 0) {
				t.Errorf("at most %d %%: %s took %d connections of %v; avoided should be the first %d", c.percent, b.name(), took[b.name()], took, c.avoided)
			}
		}
		n.eject(backends[3], true, time.Minute)
		took, more := connects(t, 50, at("10.96.0.1:80"))
		if refused+more > 0 || len(took) == 0 {
			t.Errorf("at most %d %%: %d connections were refused, and of all ejected %v took some", c.percent, refused+more, took)
		}
		n.dp.Close()
		if err := datapath.Cleanup(cfg.Root); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoBackendIsEjectedWhereThatIsTurnedOff(t *testing.T) {
	n := mustNode(t)
	b := mustServe(t, "10.244.0.1:8080/TCP")
	n.set("web", frontend("10.96.0.1:80/TCP", b))
	if known, err := n.dp.Eject(b.at, true, time.Minute); known || err != nil {
		t.Errorf("without --eject-after: %v, %v", known, err)
	}
}

func TestABackendOfNoServiceIsNotEjected(t *testing.T) {
	n := healthNode(t)
	if known, err := n.dp.Eject(mustAddrPort("10.244.0.1:8080/TCP"), true, time.Minute); known || err != nil {
		t.Errorf("%v, %v", known, err)
	}
}

// probedService has no selector, and two endpoints that somebody wrote.
const probedService = `apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: default
  annotations: {headgate.dev/probe: "%s", headgate.dev/probe-interval: "1"}
spec:
  clusterIP: 10.96.0.1
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  namespace: default
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports: [{port: 8080}]
endpoints:
- addresses: [10.244.0.1]
- addresses: [10.244.0.2]
`

// elsewhere makes a machine beside this one with addresses of 10.244.0.0/24.
func elsewhere(t *testing.T, addresses ...string) *traffic.Namespace {
	t.Helper()
	testenv.Need(t)
	ns, err := traffic.NewNamespace(traffic.RunName("hg-probe"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	peer, err := os.Open(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "probe0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(peer.Fd()))}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(link); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(plugIn("probe0", "10.244.0.254"), ns.Do(func() error { return plugIn("eth0", addresses...) })); err != nil {
		t.Fatal(err)
	}
	return ns
}

// plugIn gives a device addresses and sets it up.
func plugIn(device string, addresses ...string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a + "/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// probed is two backends on another machine that a probe may ask.
type probed struct {
	first, second *backend
	broken        atomic.Bool  // the first one says so
	asked         atomic.Int64 // both
}

func mustProbed(t *testing.T) *probed {
	t.Helper()
	p := &probed{}
	ns := elsewhere(t, "10.244.0.1", "10.244.0.2")
	for _, each := range []struct {
		address string
		is      **backend
	}{{"10.244.0.1", &p.first}, {"10.244.0.2", &p.second}} {
		var health, service net.Listener
		err := ns.Do(func() (err error) {
			if health, err = net.Listen("tcp4", each.address+":8081"); err == nil {
				service, err = net.Listen("tcp4", each.address+":8080")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		*each.is = &backend{at: mustAddrPort(each.address + ":8080/TCP"), hold: make(chan struct{})}
		go (*each.is).accept(service)
		s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.asked.Add(1)
			if r.URL.Path != "/ready" || each.is == &p.first && p.broken.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})}
		go func() { _ = s.Serve(health) }()
		t.Cleanup(func() { _, _ = s.Close(), service.Close() })
	}
	return p
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not after 30 s: ", what)
		}
	}
}

// The annotation and the flag together, across a restart: without the flag nothing is
// asked, with it the backend that fails is avoided, and without it again it is not.
func TestAnAgentAsksTheBackendsOfAServiceWithoutSelectorWhereThatIsAllowed(t *testing.T) {
	p := mustProbed(t)
	p.broken.Store(true)
	a := testenv.NewAgent(t, map[string]string{"web.yaml": fmt.Sprintf(probedService, "http:/ready:8081")})
	a.Start()
	share := func() int { took, _ := connects(t, 40, at("10.96.0.1:80")); return took[p.first.name()] }
	await(t, "the refusal is said", func() bool { return strings.Contains(a.Log.String(), "probes are switched off on this node") })
	time.Sleep(3 * time.Second)
	if n := p.asked.Load(); n > 0 || share() == 0 {
		t.Fatalf("without --probes backends were asked %d times", n)
	}
	for _, c := range []struct {
		probes string
		asks   bool
	}{{"10.244.0.0/16", true}, {"10.245.0.0/16", false}, {"allow", true}} {
		a.Kill()
		a.Flags = []string{"--probes", c.probes}
		a.Start()
		if c.asks {
			await(t, "a backend that fails its probes gets nothing with --probes "+c.probes, func() bool { return share() == 0 })
			continue
		}
		await(t, "the refusal is said", func() bool { return strings.Contains(a.Log.String(), "outside the prefixes of --probes") })
		await(t, "what an earlier probe said ends", func() bool { return share() > 0 })
	}
}

func TestAnAgentDoesNotAskItsOwnNode(t *testing.T) {
	testenv.AddAddress(t, "10.244.0.1")
	var asked atomic.Int64
	l, err := net.Listen("tcp4", "10.244.0.1:8081")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	a := testenv.NewAgent(t, map[string]string{"web.yaml": fmt.Sprintf(probedService, "http:/ready:8081")})
	a.Flags = []string{"--probes", "allow"}
	a.Start()
	await(t, "the refusal is said", func() bool { return strings.Contains(a.Log.String(), "it is an address of this node") })
	time.Sleep(3 * time.Second)
	if n := asked.Load(); n > 0 {
		t.Errorf("asked %d times", n)
	}
}

// otherNode has the address of the first backend.
const otherNode = `apiVersion: v1
kind: Node
metadata: {name: node-b}
status: {addresses: [{type: InternalIP, address: 10.244.0.1}]}
`

// A backend that would fail its probes is not asked, and so takes connections, as long as
// its address is that of another node: also after a restart.
func TestAnAgentDoesNotAskOtherNodes(t *testing.T) {
	p := mustProbed(t)
	p.broken.Store(true)
	a := testenv.NewAgent(t, map[string]string{"web.yaml": fmt.Sprintf(probedService, "http:/ready:8081"), "node.yaml": otherNode})
	a.Flags = []string{"--probes", "allow"}
	share := func() int { took, _ := connects(t, 40, at("10.96.0.1:80")); return took[p.first.name()] }
	for _, when := range []string{"at first", "after a restart"} {
		a.Start()
		await(t, "the refusal is said", func() bool { return strings.Contains(a.Log.String(), "10.244.0.1: it is an address of another node") })
		asked := p.asked.Load()
		await(t, "the other backend is asked", func() bool { return p.asked.Load() > asked+5 })
		if share() == 0 {
			t.Errorf("%s a backend at the address of another node was asked", when)
		}
		a.Kill()
	}
	a.Remove("node.yaml")
	a.Start()
	await(t, "it is asked once no node has its address", func() bool { return share() == 0 })
}

func TestAnAgentKeepsToAProbeUntilAnotherMakesSense(t *testing.T) {
	p := mustProbed(t)
	first, broken := p.first, &p.broken
	a := testenv.NewAgent(t, map[string]string{"web.yaml": fmt.Sprintf(probedService, "http:/ready:8081")})
	a.Flags = []string{"--probes", "allow"}
	a.Start()
	share := func() int { took, _ := connects(t, 40, at("10.96.0.1:80")); return took[first.name()] }
	if n := share(); n == 0 {
		t.Fatal("a backend that is well gets nothing")
	}
	broken.Store(true)
	await(t, "it gets nothing", func() bool { return share() == 0 })
	a.Write("web.yaml", fmt.Sprintf(probedService, "often"))
	await(t, "the bad value is said", func() bool { return strings.Contains(a.Log.String(), "is not a probe") })
	time.Sleep(4 * time.Second) // longer than what was said last holds: it is asked on
	if n := share(); n > 0 {
		t.Errorf("by a bad value the former probe has ended: %d of 40 connections go to a backend that fails it", n)
	}
	broken.Store(false)
	await(t, "it gets its share", func() bool { return share() > 0 })
}

package netns_test

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

// webVIP and shopVIP are the Services of the manifests.
const webVIP, shopVIP = "10.96.0.1:80", "10.96.0.2:80"

// mustWeb prepares an agent with two Services, of two backends and of one.
func mustWeb(t *testing.T) (a *testenv.Agent, web []*backend, shop *backend) {
	t.Helper()
	web = []*backend{mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")}
	shop = mustServe(t, "10.244.0.3:8080/TCP")
	return testenv.NewAgent(t, map[string]string{
		"web.yaml":        serviceYAML("web", "10.96.0.1"),
		"web-slice.yaml":  sliceYAML("web", web...),
		"shop.yaml":       serviceYAML("shop", "10.96.0.2"),
		"shop-slice.yaml": sliceYAML("shop", shop),
	}), web, shop
}

func TestKillingTheAgentBreaksNoConnection(t *testing.T) {
	a, web, _ := mustWeb(t)
	writes := a.Begun()
	open, who := dialTCP(t, inet, at(webVIP))
	l := mustLoad(t, inet, at(webVIP), web...)
	for i := range 3 {
		l.await(200)
		a.Kill()
		l.await(200)
		if a.Status().Agent {
			t.Error("the agent is killed, and status says that it runs")
		}
		if got := a.Begun(); got != writes {
			t.Errorf("restart %d: %d writes, want %d as before", i, got, writes)
		}
		if !a.Status().Agent {
			t.Errorf("restart %d: status says that no agent runs", i)
		}
	}
	l.await(200)
	l.wantNoFailure()
	open.wantPeer(at(webVIP), "after the restarts")
	if open.send("x"); who == "" {
		t.Error("the first connection had no answer")
	}
	if echo, _ := open.receive(); echo != "x" {
		t.Errorf("the first connection echoes %q", echo)
	}
}

// Every start is a replacement, and most die on the way: the later the longer
// they may live.
func TestKillingTheAgentDuringAReplacementBreaksNoConnection(t *testing.T) {
	a, web, _ := mustWeb(t)
	a.Start()
	open, _ := dialTCP(t, inet, at(webVIP))
	l := mustHammer(t, inet, at(webVIP), web...)
	finished := 0
	for i := range 40 {
		a.Kill()
		a.SocketEntries ^= 1<<12 | 1<<13
		a.Launch()
		select {
		case <-a.Ready:
			finished++
		case <-time.After(time.Duration(i) * 5 * time.Millisecond):
		}
	}
	a.Kill()
	a.Start()
	l.await(100)
	l.wantNoFailure()
	open.wantPeer(at(webVIP), "after all that")
	open.close()
	n := &node{tb: t, cfg: datapath.Config{Root: a.Root}}
	wantTidy(t, n)
	if got := n.socketEntries(); got != 0 {
		t.Errorf("all sockets are closed, and %d entries in use", got)
	}
	t.Logf("%d of 40 agents came to the end", finished)
}

func TestWhatVanishedWhileTheAgentWasDeadGoesAtItsRestart(t *testing.T) {
	a, web, shop := mustWeb(t)
	a.Start()
	wantWho(t, shopVIP, shop)
	a.Kill()
	a.Remove("shop.yaml")
	a.Remove("shop-slice.yaml")
	wantWho(t, shopVIP, shop)
	l := mustLoad(t, inet, at(webVIP), web...)
	a.Start()
	l.await(50)
	l.wantNoFailure()
	if err := mustSocket(t, inet, unix.SOCK_STREAM).connect(at(shopVIP)); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("connect to a Service that is gone: %v, want ENETUNREACH as to any address without route", err)
	}
	if got := a.Status().Frontends; got != 1 {
		t.Errorf("%d frontends are left, want 1", got)
	}
	eventually(t, "the backend of the Service is cleared", func() bool { return a.Status().Backends == 2 })
}

func TestWhatBrokeWhileTheAgentWasDeadGoesOnUntilItIsRepaired(t *testing.T) {
	for name, broken := range map[string]string{
		"no YAML at all": "{{{ not: yaml",
		"a wrong type":   "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}\nendpoints: 7\n",
	} {
		t.Run(name, func(t *testing.T) {
			a, web, shop := mustWeb(t)
			before := a.Begun()
			l := mustLoad(t, inet, at(webVIP), web...)
			a.Kill()
			a.Write("web-slice.yaml", broken)
			a.Begun()
			l.await(100)
			if after := a.Status().Writes; after != before {
				t.Errorf("a broken file made %d writes", after-before)
			}
			wantWho(t, shopVIP, shop)
			l.wantNoFailure()

			a.Write("web-slice.yaml", sliceYAML("web", shop))
			eventually(t, "the repaired file is taken over", func() bool {
				who, err := connectOnce(inet, at(webVIP))
				return err == nil && who == shop.name()
			})
		})
	}
}

func TestCleanupEndsEverything(t *testing.T) {
	a, web, _ := mustWeb(t)
	a.Start()
	s, who := dialTCP(t, inet, at(webVIP))
	if err := datapath.Cleanup(a.Root); !errors.Is(err, datapath.ErrBusy) {
		t.Errorf("cleanup under an agent says %v, want ErrBusy", err)
	}
	a.Kill()
	if err := datapath.Cleanup(a.Root); err != nil {
		t.Fatal(err)
	}
	for _, b := range web {
		if b.name() == who {
			s.wantPeer(b.addr(), "after cleanup")
		}
	}
	if err := mustSocket(t, inet, unix.SOCK_STREAM).connect(at(webVIP)); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("connect after cleanup: %v, want ENETUNREACH", err)
	}
}

// wantWho checks who answers for a Service.
func wantWho(t *testing.T, vip string, want *backend) {
	t.Helper()
	if _, who := dialTCP(t, inet, at(vip)); who != want.name() {
		t.Errorf("%q answers for %s, want %q", who, vip, want.name())
	}
}

// eventually waits for something that comes at its own pace.
func eventually(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if is() {
			return
		}
	}
	tb.Fatalf("in a minute not: %s", what)
}

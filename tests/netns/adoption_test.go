package netns_test

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
)

// webVIP and shopVIP are the Services of the manifests.
const webVIP, shopVIP = "10.96.0.1:80", "10.96.0.2:80"

// mustWeb prepares an agent with two Services, of two backends and of one.
func mustWeb(t *testing.T) (a *agent, web []*backend, shop *backend) {
	t.Helper()
	web = []*backend{mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")}
	shop = mustServe(t, "10.244.0.3:8080/TCP")
	return mustAgent(t, map[string]string{
		"web.yaml":        serviceYAML("web", "10.96.0.1"),
		"web-slice.yaml":  sliceYAML("web", web...),
		"shop.yaml":       serviceYAML("shop", "10.96.0.2"),
		"shop-slice.yaml": sliceYAML("shop", shop),
	}), web, shop
}

func TestKillingTheAgentBreaksNoConnection(t *testing.T) {
	a, web, _ := mustWeb(t)
	a.start()
	writes := a.status().Writes
	open, who := dialTCP(t, inet, at(webVIP))
	l := mustLoad(t, inet, at(webVIP), web...)
	for i := range 3 {
		l.await(200)
		a.kill()
		l.await(200)
		if a.status().Agent {
			t.Error("the agent is killed, and status says that it runs")
		}
		a.start()
		if got := a.status(); got.Writes != writes || !got.Agent {
			t.Errorf("restart %d: %d writes, want %d as before; running: %v", i, got.Writes, writes, got.Agent)
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
	a.start()
	open, _ := dialTCP(t, inet, at(webVIP))
	l := mustHammer(t, inet, at(webVIP), web...)
	finished := 0
	for i := range 40 {
		a.kill()
		a.promises ^= 1<<12 | 1<<13
		a.launch()
		select {
		case <-a.ready:
			finished++
		case <-time.After(time.Duration(i) * 5 * time.Millisecond):
		}
	}
	a.kill()
	a.start()
	l.await(100)
	l.wantNoFailure()
	open.wantPeer(at(webVIP), "after all that")
	open.close()
	n := &node{tb: t, cfg: datapath.Config{Root: a.root}}
	wantTidy(t, n)
	if got := n.promises(); got != 0 {
		t.Errorf("all sockets are closed, and %d promises in use", got)
	}
	t.Logf("%d of 40 agents came to the end", finished)
}

func TestWhatVanishedWhileTheAgentWasDeadGoesAtItsRestart(t *testing.T) {
	a, web, shop := mustWeb(t)
	a.start()
	wantWho(t, shopVIP, shop)
	a.kill()
	a.remove("shop.yaml")
	a.remove("shop-slice.yaml")
	wantWho(t, shopVIP, shop)
	l := mustLoad(t, inet, at(webVIP), web...)
	a.start()
	l.await(50)
	l.wantNoFailure()
	if err := mustSocket(t, inet, unix.SOCK_STREAM).connect(at(shopVIP)); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("connect to a Service that is gone: %v, want ENETUNREACH as to any address without route", err)
	}
	if got := a.status().Frontends; got != 1 {
		t.Errorf("%d frontends are left, want 1", got)
	}
	eventually(t, "the backend of the Service is cleared", func() bool { return a.status().Backends == 2 })
}

func TestWhatBrokeWhileTheAgentWasDeadGoesOnUntilItIsRepaired(t *testing.T) {
	for name, broken := range map[string]string{
		"no YAML at all": "{{{ not: yaml",
		"a wrong type":   "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}\nendpoints: 7\n",
	} {
		t.Run(name, func(t *testing.T) {
			a, web, shop := mustWeb(t)
			a.start()
			l := mustLoad(t, inet, at(webVIP), web...)
			before := a.status()
			a.kill()
			a.write("web-slice.yaml", broken)
			a.start()
			l.await(100)
			if after := a.status(); after.Writes != before.Writes {
				t.Errorf("a broken file made %d writes", after.Writes-before.Writes)
			}
			wantWho(t, shopVIP, shop)
			l.wantNoFailure()

			a.write("web-slice.yaml", sliceYAML("web", shop))
			eventually(t, "the repaired file is taken over", func() bool {
				who, err := connectOnce(inet, at(webVIP))
				return err == nil && who == shop.name()
			})
		})
	}
}

func TestCleanupEndsEverything(t *testing.T) {
	a, web, _ := mustWeb(t)
	a.start()
	s, who := dialTCP(t, inet, at(webVIP))
	if err := datapath.Cleanup(a.root); !errors.Is(err, datapath.ErrBusy) {
		t.Errorf("cleanup under an agent says %v, want ErrBusy", err)
	}
	a.kill()
	if err := datapath.Cleanup(a.root); err != nil {
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
	for range 3000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	tb.Fatalf("in half a minute not: %s", what)
}

package netns_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/tests/testenv"
)

// suspect says of a backend what a probe has found out.
func (n *node) suspect(b *backend, suspect bool, noTrialFor time.Duration) {
	n.tb.Helper()
	known, err := n.dp.Suspect(b.at, suspect, noTrialFor)
	if err != nil || !known {
		n.tb.Fatalf("suspect %s: known %v, %v", b.at, known, err)
	}
}

func TestABackendThatAProbeSuspectsIsAvoidedUntilAProbeClearsIt(t *testing.T) {
	n := healthNode(t)
	bad, good := mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")
	n.set("web", frontend("10.96.0.1:80/TCP", bad, good))
	n.suspect(bad, true, time.Minute)
	time.Sleep(1100 * time.Millisecond) // a trial would be due otherwise
	if took, _ := connects(t, 100, at("10.96.0.1:80")); took[bad.name()] > 0 {
		t.Errorf("connections went to %v, want none to %s", took, bad.name())
	}
	n.suspect(bad, false, 0)
	if took, _ := connects(t, 200, at("10.96.0.1:80")); took[bad.name()] < 50 {
		t.Errorf("connections went to %v, want about half of 200 to %s", took, bad.name())
	}
}

// Of three suspects among four backends the first ones are avoided, as many as may be.
// The others take connections, which clears them.
func TestTheKernelLimitsWhatProbesCanTakeOut(t *testing.T) {
	var backends []*backend
	for i := range 4 {
		backends = append(backends, mustServe(t, fmt.Sprintf("10.244.0.%d:8080/TCP", i+1)))
	}
	for _, c := range []struct{ percent, avoided uint32 }{{25, 1}, {50, 2}, {75, 3}} {
		cfg := config(t)
		cfg.SuspectAfter, cfg.MaxEjected = 2, c.percent
		n := mustNodeOf(t, cfg)
		n.set("web", frontend("10.96.0.1:80/TCP", backends...))
		for _, b := range backends[:3] {
			n.suspect(b, true, time.Minute)
		}
		took, refused := connects(t, 200, at("10.96.0.1:80"))
		for i, b := range backends {
			if avoided := i < int(c.avoided); avoided != (took[b.name()] == 0) {
				t.Errorf("at most %d %%: %s took %d connections of %v; avoided should be the first %d", c.percent, b.name(), took[b.name()], took, c.avoided)
			}
		}
		n.suspect(backends[3], true, time.Minute)
		took, more := connects(t, 50, at("10.96.0.1:80"))
		if refused+more > 0 || len(took) == 0 {
			t.Errorf("at most %d %%: %d connections were refused, and of all suspects %v took some", c.percent, refused+more, took)
		}
		n.dp.Close()
		if err := datapath.Cleanup(cfg.Root); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNobodyIsASuspectWhereThatIsTurnedOff(t *testing.T) {
	n := mustNode(t)
	b := mustServe(t, "10.244.0.1:8080/TCP")
	n.set("web", frontend("10.96.0.1:80/TCP", b))
	if known, err := n.dp.Suspect(b.at, true, time.Minute); known || err != nil {
		t.Errorf("without --suspect-after: %v, %v", known, err)
	}
}

func TestABackendOfNoServiceIsNoSuspect(t *testing.T) {
	n := healthNode(t)
	if known, err := n.dp.Suspect(mustAddrPort("10.244.0.1:8080/TCP"), true, time.Minute); known || err != nil {
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

func TestAnAgentAsksTheBackendsOfAServiceWithoutSelector(t *testing.T) {
	var broken atomic.Bool
	for _, a := range []string{"10.244.0.1", "10.244.0.2"} {
		testenv.AddAddress(t, a)
		l, err := net.Listen("tcp4", a+":8081")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/ready" || a == "10.244.0.1" && broken.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
	}
	first := mustServe(t, "10.244.0.1:8080/TCP")
	mustServe(t, "10.244.0.2:8080/TCP")
	a := mustAgent(t, map[string]string{"web.yaml": fmt.Sprintf(probedService, "http:/ready:8081")})
	a.start()
	share := func() int { took, _ := connects(t, 40, at("10.96.0.1:80")); return took[first.name()] }
	if n := share(); n == 0 {
		t.Fatal("a backend that is well gets nothing")
	}
	broken.Store(true)
	await := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("not after 30 s: ", what)
			}
		}
	}
	await("it gets nothing", func() bool { return share() == 0 })
	a.write("web.yaml", fmt.Sprintf(probedService, "often"))
	await("the bad value is said", func() bool { return strings.Contains(a.log.String(), "is not a probe") })
	time.Sleep(4 * time.Second) // longer than what was said last holds: it is asked on
	if n := share(); n > 0 {
		t.Errorf("by a bad value the former probe has ended: %d of 40 connections go to a backend that fails it", n)
	}
	broken.Store(false)
	await("it gets its share", func() bool { return share() > 0 })
}

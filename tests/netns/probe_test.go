package netns_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

func TestTheKernelLimitsWhatProbesCanTakeOut(t *testing.T) {
	n := healthNode(t)
	backends := []*backend{mustServe(t, "10.244.0.1:8080/TCP"), mustServe(t, "10.244.0.2:8080/TCP")}
	n.set("web", frontend("10.96.0.1:80/TCP", backends...))
	for _, b := range backends {
		n.suspect(b, true, time.Minute)
	}
	if took, refused := connects(t, 50, at("10.96.0.1:80")); refused > 0 || took["10.244.0.1:8080/TCP"]+took["10.244.0.2:8080/TCP"] != 50 {
		t.Errorf("%d of 50 connections were refused and %v taken, want all of them taken", refused, took)
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

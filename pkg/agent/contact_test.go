package agent

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/pkg/source/kube"
)

const apiURL = "https://192.0.2.1:6443"

func TestContactThatIsLostIsToldOnceAndOnceWhenItIsBack(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	dir, reports := t.TempDir(), &recorder{}
	a := newStatusServer(Config{NodeName: "node-a", StateDir: dir, Datapath: datapath.Config{Root: "/pins"}}, zap.New(core), reports, metrics.New("test"))
	began := time.Now().Add(-time.Hour)
	h := kube.Health{Began: began, Cause: syscall.ECONNREFUSED, Servers: map[string]error{apiURL: syscall.ECONNREFUSED}}
	c := &contact{status: a, health: func() kube.Health { return h }, logged: map[string]bool{}}
	a.metrics.WatchContact(c.measure)
	const problem = `Node node-a: API server "` + apiURL + `": refuses connections; check that it runs, and listens at this address and port`

	c.look(began.Add(time.Second))
	if logs.Len() != 0 || len(reports.last) != 0 {
		t.Errorf("a problem after a second: %v", logs.All())
	}
	for i := range 10 {
		c.look(began.Add(time.Duration(3+i) * time.Second))
	}
	if got := logs.FilterMessage("no contact with the API server").FilterField(zap.String("problem", problem)).Len(); got != 1 {
		t.Errorf("it was logged %d times: %v", got, logs.All())
	}
	if len(reports.last) != 1 || reports.last[0].Error() != problem {
		t.Errorf("told %v", reports.last)
	}
	code, body := get(t, a.proxy.Handler(), "/healthz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "refuses connections") {
		t.Errorf("/healthz: %d, %s", code, body)
	}
	r, err := ReadReport(dir, "/pins")
	if err != nil || r.Contact == nil || !r.Contact.Lost.Equal(began) || r.Contact.Synced || len(r.Problems) != 1 {
		t.Errorf("report %+v, %v", r, err)
	}
	_, body = get(t, a.metrics.Handler(noConfig), "/metrics")
	wantLine(t, body, `headgate_api_server_up{server="`+apiURL+`"} `, 0)
	wantLine(t, body, `headgate_problems{scope="node"} `, 1)
	if !regexp.MustCompile(`(?m)^headgate_api_contact_age_seconds 3[67]\d\d`).MatchString(body) {
		t.Errorf("without contact for an hour, the metrics say otherwise:\n%s", body)
	}

	h = kube.Health{Began: began, Synced: true, LastContact: time.Now().Add(time.Hour), Server: apiURL, Servers: map[string]error{apiURL: nil}}
	a.setNode(lb.Node{Name: "node-a"})
	for i := range 3 {
		c.look(began.Add(time.Duration(31+i) * time.Second))
	}
	back := logs.FilterMessage("contact with the API server").FilterField(zap.String("server", apiURL)).FilterField(zap.Duration("after", 31*time.Second))
	if back.Len() != 1 || logs.Len() != 2 {
		t.Errorf("that it is back was logged %d times: %v", back.Len(), logs.All())
	}
	if code, body := get(t, a.proxy.Handler(), "/healthz"); code != http.StatusOK || strings.Contains(body, "reason") {
		t.Errorf("/healthz: %d, %s", code, body)
	}
	if r, err := ReadReport(dir, "/pins"); err != nil || r.Contact == nil || *r.Contact != (Contact{Server: apiURL, Synced: true}) || len(r.Problems) != 0 {
		t.Errorf("report %+v, %v", r, err)
	}
	_, body = get(t, a.metrics.Handler(noConfig), "/metrics")
	wantLine(t, body, `headgate_api_server_up{server="`+apiURL+`"} `, 1)
	wantLine(t, body, `headgate_api_contact_age_seconds `, 0)
}

func TestProgramsThatWereTakenAwayAreToldOfOnce(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	reports := &recorder{}
	a := newStatusServer(Config{NodeName: "node-a", Manifests: "dir"}, zap.New(core), reports, metrics.New("test"))
	healthz := func(want int, reason string) {
		t.Helper()
		if code, body := get(t, a.proxy.Handler(), "/healthz"); code != want || !strings.Contains(body, reason) {
			t.Errorf("/healthz: %d, %s; want %d, %s", code, body, want, reason)
		}
	}
	a.Force(reconciler.Force{})
	healthz(http.StatusOK, "")
	for range 3 {
		a.Force(reconciler.Force{OutOfForce: errors.New("the cgroup /c is gone")})
	}
	healthz(http.StatusServiceUnavailable, "the cgroup /c is gone")
	a.Force(reconciler.Force{Restored: []string{"connect4", "connect6"}})
	a.Force(reconciler.Force{})
	healthz(http.StatusOK, "")
	if len(reports.last) != 1 || reports.last[0].Value != "connect4, connect6" {
		t.Errorf("told %v", reports.last)
	}
	a.restored.until = time.Now()
	a.Force(reconciler.Force{})
	if len(reports.last) != 0 || logs.FilterMessage("problem").Len() != 2 || logs.FilterMessage("problem solved").Len() != 2 {
		t.Errorf("told %v, logged %v", reports.last, logs.All())
	}
	_, body := get(t, a.metrics.Handler(noConfig), "/metrics")
	wantLine(t, body, "headgate_programs_restored_total ", 2)
}

func TestPinsThatWereRemovedAreNoPrograms(t *testing.T) {
	reports := &recorder{}
	a := newStatusServer(Config{NodeName: "node-a", Datapath: datapath.Config{Root: "/pins"}}, zap.NewNop(), reports, metrics.New("test"))
	programs := `Node node-a: programs "connect4": were detached, and the agent has attached them again; find out what detaches programs on this node`
	pins := `Node node-a: pins below /pins: were removed, and the agent has made them again; find out what removes files there on this node`
	for _, c := range []struct{ restored, want []string }{
		{[]string{"connect4"}, []string{programs}},
		{[]string{datapath.RestoredPins}, []string{pins}},
		{[]string{datapath.RestoredPins, "connect4"}, []string{programs, pins}},
	} {
		a.Force(reconciler.Force{Restored: c.restored})
		var got []string
		for _, p := range reports.last {
			got = append(got, p.Error())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("of %v (-want +got):\n%s", c.restored, diff)
		}
	}
}

func TestDevicesThatRefuseAreToldOfOneByOneAndBounded(t *testing.T) {
	reports := &recorder{}
	a := newStatusServer(Config{NodeName: "node-a", Manifests: "dir"}, zap.NewNop(), reports, metrics.New("test"))
	var busy []error
	for i := range lb.MostTogether + 2 {
		busy = append(busy, fmt.Errorf("device pod%d: busy", i))
	}
	joined := errors.Join(errors.Join(busy[:500]...), errors.Join(busy[500:]...))
	a.Force(reconciler.Force{Devices: joined, OutOfForce: joined})
	if n := lb.MostTogether + 1; len(reports.last) != n {
		t.Fatalf("%d are told, want %d", len(reports.last), n)
	}
	if got := reports.last[0].Error(); got != "Node node-a: programs: are out of force: device pod0: busy; they are attached again as soon as that is possible" {
		t.Errorf("told first %q", got)
	}
	if got := reports.last[lb.MostTogether].Error(); got != "the node: has 1004 more problems; mend the others first" {
		t.Errorf("told last %q", got)
	}
	if _, body := get(t, a.proxy.Handler(), "/healthz"); len(body) > 1000 {
		t.Errorf("/healthz has %d bytes: %s", len(body), body)
	}
}

// Sockets are balanced, so the node stays in rotation; its operator is told.
func TestWhatIsAmissBesideProgramsInForceIsToldOfWithoutHarm(t *testing.T) {
	for want, f := range map[string]reconciler.Force{
		"cannot be pinned and end with the agent: no file system; mount a BPF file system where it was": {Unpinned: errors.New("no file system")},
		"cannot be attached, packets of the device are not balanced: eth9: busy; look at the device":    {Devices: errors.New("eth9: busy")},
	} {
		reports := &recorder{}
		a := newStatusServer(Config{NodeName: "node-a", Manifests: "dir"}, zap.NewNop(), reports, metrics.New("test"))
		a.Force(f)
		if len(reports.last) != 1 || !strings.Contains(reports.last[0].Error(), "Node node-a: programs: "+want) {
			t.Errorf("told %v, want %q", reports.last, want)
		}
		if code, body := get(t, a.proxy.Handler(), "/healthz"); code != http.StatusOK {
			t.Errorf("%s: /healthz: %d, %s", want, code, body)
		}
		a.Force(reconciler.Force{})
		if len(reports.last) != 0 {
			t.Errorf("told %v when it is over", reports.last)
		}
	}
}

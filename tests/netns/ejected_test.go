package netns_test

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// listenIn has a backend take connections on a machine until the returned function is
// called.
func (b *backend) listenIn(t *testing.T, machine *traffic.Namespace) (stop func()) {
	t.Helper()
	var l *net.TCPListener
	err := machine.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(b.addr()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go b.accept(l)
	return func() { _ = l.Close() }
}

// reads is the number of ejected backends as every way to ask tells it.
type reads struct{ list, metric, metrics, problems int }

// readEjected asks in every way.
func readEjected(t *testing.T, a *testenv.Agent, state, address string) (r reads) {
	t.Helper()
	show := func(into any, args ...string) {
		out := a.Output(append(args, "-j", "--state-dir", state)...)
		if err := json.Unmarshal(out, into); err != nil {
			t.Fatalf("headgate %v says %q: %v", args, out, err)
		}
	}
	var backends struct {
		Items []struct {
			Ejected int64 `json:"ejectedNs"`
		} `json:"items"`
	}
	show(&backends, "backend", "list")
	for _, b := range backends.Items {
		if b.Ejected > 0 {
			r.list++
		}
	}
	var status struct {
		Problems []struct{} `json:"problems"`
	}
	show(&status, "status")
	r.problems = len(status.Problems)
	for _, line := range series(t, address, "headgate_backends_ejected ") {
		_, _ = fmt.Sscanf(line, "headgate_backends_ejected %d", &r.metrics)
	}
	for _, line := range series(t, address, "headgate_backend_ejected{") {
		if line[len(line)-2:] == " 1" {
			r.metric++
		}
	}
	return r
}

// Connections find a backend out before its probe does, or nobody connects and the
// probe does. In either case one probe that succeeds ends the ejection, for all who ask.
func TestABackendThatPassesItsProbeIsWellForAllWhoAsk(t *testing.T) {
	for i, c := range []struct {
		name     string
		connects bool
		meantime func(*testenv.Agent)
	}{
		{"found out by its probe", false, func(*testenv.Agent) {}},
		{"found out by connections", true, func(*testenv.Agent) {}},
		{"agent restarted meanwhile", true, func(a *testenv.Agent) { a.Kill(); a.Start() }},
		{"agent upgraded meanwhile", true, func(a *testenv.Agent) { a.Kill(); a.SocketEntries *= 2; a.Start() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, state := fmt.Sprintf("127.0.0.1:%d", 20260+i), t.TempDir()
			first, second := &backend{at: mustAddrPort("10.244.0.1:8080/TCP")}, &backend{at: mustAddrPort("10.244.0.2:8080/TCP")}
			machine := elsewhere(t, "10.244.0.1", "10.244.0.2") // an agent does not ask its own node
			first.listenIn(t, machine)
			stop := second.listenIn(t, machine)
			a := testenv.NewAgent(t, map[string]string{"web.yaml": fmt.Sprintf(probedService, "tcp")})
			a.Flags = []string{"--metrics-bind-address", address, "--metrics-per-backend", "--probes", "10.244.0.0/16", "--state-dir", state, "--eject-after", "2"}
			a.Start()
			want := func(what string, want reads) {
				t.Helper()
				got := readEjected(t, a, state, address)
				for end := time.Now().Add(30 * time.Second); got != want; got = readEjected(t, a, state, address) {
					if time.Now().After(end) {
						t.Fatalf("in half a minute not: %s; ejected are %+v", what, got)
					}
				}
			}
			want("all are well", reads{})
			stop()
			for range 20 {
				if s := mustSocket(t, inet, unix.SOCK_STREAM); c.connects {
					_ = s.connect(at("10.96.0.1:80")) // refused until it is ejected
				}
			}
			want("one is ejected", reads{1, 1, 1, 1})
			c.meantime(a)
			want("one is still ejected", reads{1, 1, 1, 1})
			second.listenIn(t, machine)
			want("all are well again", reads{})
			if took, _ := connects(t, 100, at("10.96.0.1:80")); took[second.name()] < 20 {
				t.Errorf("connections went to %v, want about half of 100 to each", took)
			}
		})
	}
}

// What a configuration with probes has ejected is not held against backends by one that
// never asks them again.
func TestEjectedBackendsThatNothingWouldClearAreClearedAtTheStart(t *testing.T) {
	for i, flags := range [][]string{{"--probes", "deny"}, {"--eject-after", "0"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			address, state := fmt.Sprintf("127.0.0.1:%d", 20270+i), t.TempDir()
			first := &backend{at: mustAddrPort("10.244.0.1:8080/TCP")}
			first.listenIn(t, elsewhere(t, "10.244.0.1", "10.244.0.2")) // nobody listens on the other
			a := testenv.NewAgent(t, map[string]string{"web.yaml": fmt.Sprintf(probedService, "tcp")})
			common := []string{"--metrics-bind-address", address, "--metrics-per-backend", "--state-dir", state}
			wait := func(what string, want reads) {
				t.Helper()
				got := readEjected(t, a, state, address)
				for end := time.Now().Add(30 * time.Second); got.list != want.list || got.metrics != want.metrics; got = readEjected(t, a, state, address) {
					if time.Now().After(end) {
						t.Fatalf("in half a minute not: %s; ejected are %+v", what, got)
					}
				}
			}
			a.Flags = append(slices.Clone(common), "--probes", "allow", "--eject-after", "2")
			a.Start()
			wait("one is ejected", reads{list: 1, metrics: 1})
			a.Kill()
			a.Flags = append(slices.Clone(common), flags...)
			a.Start()
			wait("none is", reads{})
		})
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/tests/controlplane"
	"github.com/headgate/headgate/tests/testenv"
)

// patience is how long the tests wait for something that takes a moment.
const patience = time.Minute

// stage is what one test has: a namespace of Kubernetes, an agent, a client.
type stage struct {
	tb        testing.TB
	ctx       context.Context
	world     *world
	namespace string
	root      string // of BPF pins
	servers   string // URLs of API servers for the agent, "" for the kubeconfig's
	agent     *controlplane.Process
	client    *load.Client
	dir       string
}

// mustStage prepares a test; the agent is not started.
func mustStage(tb testing.TB) *stage {
	tb.Helper()
	w := mustWorld(tb)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	tb.Cleanup(cancel)
	s := &stage{tb: tb, ctx: ctx, world: w, namespace: fmt.Sprintf("test-%d", w.stages), root: testenv.BPFRoot(tb), dir: tb.TempDir()}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asClient+"=1")
	cmd.Stderr = os.Stderr
	var err error
	if s.client, err = load.StartClient(w.node(), nil, "client", cmd); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.client.Close() })
	s.makeNamespace()
	tb.Cleanup(func() {
		if s.agent != nil {
			if tb.Failed() {
				tb.Logf("the agent says:\n%s", s.agent.Tail())
			}
			s.agent.Stop()
		}
	})
	return s
}

// startAgent starts the agent on the first node.
func (s *stage) startAgent() {
	s.tb.Helper()
	args := []string{"--bpf-root", s.root, "agent", "--kubeconfig", s.world.cluster.ProxyKubeconfig(), "--node-name", thisNode,
		"--state-dir", filepath.Join(s.dir, "state"), // else one test would know the servers of another
		"--cgroup", testenv.Cgroup(s.tb), "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"}
	if s.servers != "" {
		args = append(args, "--api-servers", s.servers)
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asHeadgate+"=1")
	var err error
	if s.agent, err = controlplane.StartProcess(s.world.node(), nil, s.dir, "agent", cmd); err != nil {
		s.tb.Fatal(err)
	}
}

// eventually waits until a condition holds. It says why it does not where it
// never does.
func (s *stage) eventually(what string, holds func() error) {
	s.tb.Helper()
	limit := time.Now().Add(patience)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			s.tb.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// backends returns the backends of clients on this node behind an address, as
// the kernel has them, sorted; an error where the address is no frontend.
func (s *stage) backends(at netip.AddrPort) ([]string, error) {
	i, err := datapath.Inspect(s.root)
	if err != nil {
		return nil, err
	}
	defer i.Close()
	content, err := i.Content()
	if err != nil {
		return nil, err
	}
	f, ok := content.Frontends[lb.AddrPort{Addr: at.Addr(), Port: at.Port(), Protocol: lb.TCP}]
	if !ok {
		return nil, fmt.Errorf("%s is no frontend", at)
	}
	out := []string{}
	for _, id := range content.Tables[f.Views[lb.Internal].Table] {
		b := content.Backends[id]
		out = append(out, netip.AddrPortFrom(b.Addr, b.Port).String())
	}
	slices.Sort(out)
	return out, nil
}

// awaitBackends waits until just these backends are behind an address.
func (s *stage) awaitBackends(at netip.AddrPort, want ...string) {
	s.tb.Helper()
	slices.Sort(want)
	s.eventually("the backends of "+at.String(), func() error {
		got, err := s.backends(at)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("got %d: %s, want %d: %s", len(got), brief(got), len(want), brief(want))
		}
		return err
	})
}

// brief joins the first of many words.
func brief(words []string) string {
	const most = 8
	if len(words) > most {
		return strings.Join(words[:most], " ") + " …"
	}
	return strings.Join(words, " ")
}

// connections is a load of connections to addresses, so many a second.
func connections(rate float64, to ...netip.AddrPort) load.Spec {
	return load.Spec{Kind: load.CRR, Targets: to, Rate: rate, Connections: max(8, len(to)), Senders: 1, CheckPeer: true, Unchecked: true, Outside: true}
}

// run has the client make a hundred connections to an address.
func (s *stage) run(at netip.AddrPort) result.Run {
	s.tb.Helper()
	spec := connections(400, at)
	spec.Duration, spec.Timeout = 250*time.Millisecond, 5*time.Second
	run, err := s.client.Run(s.ctx, spec, nil)
	if err != nil {
		s.tb.Fatal(err)
	}
	return run
}

// wantAnswers fails the test unless connections to an address are answered by just
// these servers.
func (s *stage) wantAnswers(at netip.AddrPort, want ...string) {
	s.tb.Helper()
	run := s.run(at)
	if run.Failed > 0 {
		s.tb.Errorf("connections to %s: %s", at, run.ErrorText())
	}
	if got := slices.Sorted(maps.Keys(run.Answers())); !slices.Equal(got, want) {
		s.tb.Errorf("%s is answered by %v, want %v", at, got, want)
	}
}

// traffic has the client make connections to addresses until the function that
// it returns is called, which fails the test if one of them failed.
func (s *stage) traffic(to ...netip.AddrPort) (end func() map[string]uint64) {
	s.tb.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	type outcome struct {
		result.Run
		error
	}
	over := make(chan outcome, 1)
	go func() {
		spec := connections(500, to...)
		spec.Duration, spec.Interval = time.Hour, time.Hour
		run, err := s.client.Run(ctx, spec, nil)
		over <- outcome{run, err}
	}()
	s.tb.Cleanup(cancel)
	return func() map[string]uint64 {
		s.tb.Helper()
		time.Sleep(200 * time.Millisecond) // the last change has traffic, too
		cancel()
		o := <-over
		if o.error != nil || o.Failed > 0 || o.Completed == 0 {
			s.tb.Errorf("under traffic: error %v, %d completed, failures %s", o.error, o.Completed, o.ErrorText())
		}
		return o.Answers()
	}
}

// metrics returns what the agent answers on /metrics.
func (s *stage) metrics() (map[string]string, error) {
	client := http.Client{Transport: &http.Transport{DialContext: controlplane.Dialer(s.world.node()), DisableKeepAlives: true}}
	answer, err := client.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return readMetrics(answer.Body)
}

// healthy returns an error unless the agent says that it is up to date.
func (s *stage) healthy() error {
	client := http.Client{Transport: &http.Transport{DialContext: controlplane.Dialer(s.world.node()), DisableKeepAlives: true}}
	answer, err := client.Get("http://127.0.0.1:10256/healthz")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

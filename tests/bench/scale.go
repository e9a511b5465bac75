package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/controlplane"
)

// scaled is what the parts with an API server share: it and what watches it are in one
// network namespace.
type scaled struct {
	*bench
	dir       string
	headgate  string // the agent's program
	kubeProxy string // that of kube-proxy, "" where it is not built
	topology  *traffic.Topology
	api       *apiServer
}

// scale measures Headgate from what an API server of few words says, beside kube-proxy where
// it is built.
func (b *bench) scale() (err error) {
	s := &scaled{bench: b}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.prepare(); err != nil {
		return err
	}
	t := newScaleTables()
	clusters := b.plan.clusters
	if b.cluster != (shape{}) {
		clusters = []shape{b.cluster}
	}
	for _, c := range clusters {
		if err := s.measure(c, t); err != nil {
			return fmt.Errorf("%s endpoints: %w", c, err)
		}
		if s.kubeProxy != "" {
			if err := s.besideKubeProxy(c, t); err != nil {
				return err
			}
		}
	}
	t.rest.Note += " Load average afterwards: " + loadAverage() + "."
	b.report.table(t.rest)
	b.report.table(t.changes)
	return nil
}

// prepare makes what is needed.
func (s *scaled) prepare() (err error) {
	if dir, err := controlplane.Built(s.ctx, controlplane.KubeProxy); err == nil {
		s.kubeProxy = filepath.Join(dir, controlplane.KubeProxy)
	}
	if s.dir, err = os.MkdirTemp("", "headgate-bench-"); err != nil {
		return err
	}
	if s.headgate, err = s.buildAgent(s.dir); err != nil {
		return err
	}
	s.topology, err = traffic.NewTopology(traffic.TopologySpec{Name: traffic.RunName("headgate-bench"), Machines: []traffic.Machine{
		{Name: theNode, Forwards: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}},
	}})
	return err
}

func (s *scaled) close() error {
	var errs []error
	if s.topology != nil {
		errs = append(errs, s.topology.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// node is the network namespace that all of it is in.
func (s *scaled) node() *traffic.Namespace { return s.topology.Namespace(theNode) }

// kubeconfig is the path of what clients of the API server read.
func (s *scaled) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

const kubeconfigText = `apiVersion: v1
kind: Config
current-context: bench
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
clusters: [{name: bench, cluster: {server: "http://%s"}}]
users: [{name: bench, user: {}}]
`

// serve starts an API server that has a cluster.
func (s *scaled) serve(c shape) error {
	if err := s.step("make %s endpoints", c); err != nil {
		return err
	}
	var l net.Listener
	if err := s.node().Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		return err
	}
	s.api = newAPIServer(l)
	if err := os.WriteFile(s.kubeconfig(), fmt.Appendf(nil, kubeconfigText, s.api.addr), 0o600); err != nil {
		return err
	}
	return c.load(s.api)
}

// measure measures one cluster.
func (s *scaled) measure(c shape, t *scaleTables) (err error) {
	if err := s.serve(c); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.api.close()) }()
	start, err := s.coldStarts(c)
	if err != nil {
		return err
	}
	return s.withAgent("scale-rest", func(a *scaledAgent) error {
		if err := s.rests(c, a, start, t); err != nil {
			return err
		}
		return s.changesOf(c, a, t)
	})
}

// cleanEnv is this process's environment as a user's would be.
func cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GODEBUG=") })
}

// scaledAgent is an agent on a node of its own.
type scaledAgent struct {
	*controlplane.Process
	group *group
	ready time.Duration // from the start of the process until all of it was in the kernel
	cpu   float64       // seconds of CPU until then
}

// agentCommand is the agent as a node runs it.
func (s *scaled) agentCommand(g *group) *exec.Cmd {
	cmd := exec.Command(s.headgate, "--bpf-root", g.root, "agent", "--kubeconfig", s.kubeconfig(),
		"--node-name", "node-a", "--cgroup", g.path, "--state-dir", filepath.Join(s.dir, g.name), "--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0")
	cmd.Env = cleanEnv()
	return cmd
}

// withAgent runs an agent on an empty node and calls a function once all of it is
// in the kernel.
func (s *scaled) withAgent(name string, f func(*scaledAgent) error) (err error) {
	g, err := s.emptyNode(name)
	if err != nil {
		return err
	}
	log := filepath.Join(s.dir, name+".log")
	defer func() { err = errors.Join(err, datapath.Cleanup(g.root), s.drop(g), os.Remove(log)) }()
	from := time.Now()
	p, err := controlplane.StartProcess(s.node(), nil, s.dir, name, s.agentCommand(g))
	if err != nil {
		return err
	}
	defer p.Stop()
	if err := s.awaitLine(p, log, "ready"); err != nil {
		return err
	}
	a := &scaledAgent{Process: p, group: g, ready: time.Since(from)}
	if a.cpu, err = cpuTime(p.PID()); err != nil {
		return err
	}
	return f(a)
}

// awaitLine returns when a process has written a word to its log.
func (s *scaled) awaitLine(p *controlplane.Process, log, word string) error {
	limit := time.After(2 * time.Minute)
	for {
		if text, err := os.ReadFile(log); err == nil && strings.Contains(string(text), "\t"+word) {
			return nil
		}
		select {
		case <-p.Ended():
			return fmt.Errorf("%s ended:\n%s", filepath.Base(log), p.Tail())
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-limit:
			return fmt.Errorf("%s: not %s within two minutes:\n%s", filepath.Base(log), word, p.Tail())
		case <-time.After(time.Millisecond):
		}
	}
}

// coldStart is how long starts took, round by round, in ms; CPU in seconds.
type coldStart struct{ decode, agent, cpu []float64 }

// coldStarts measures starts of processes: one that only receives and decodes
// every object, and the agent.
func (s *scaled) coldStarts(c shape) (took coldStart, err error) {
	decode := func() error {
		alone, err := s.decodeOnce()
		took.decode = append(took.decode, alone)
		return err
	}
	agent := func() error {
		return s.withAgent("scale-start", func(a *scaledAgent) error {
			took.agent, took.cpu = append(took.agent, ms(a.ready)), append(took.cpu, a.cpu)
			return nil
		})
	}
	for i := range s.plan.scaleStarts {
		if err := s.step("%s endpoints: cold start %d of %d", c, i+1, s.plan.scaleStarts); err != nil {
			return took, err
		}
		parts := []func() error{decode, agent}
		rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		for _, part := range parts {
			if err := part(); err != nil {
				return took, err
			}
		}
	}
	s.report.add(c.key()+"decode", "ms", summary(took.decode))
	s.report.add(c.key()+"ready", "ms", summary(took.agent))
	s.report.add(c.key()+"times_decoding", "×", ratio(took.agent, took.decode))
	return took, nil
}

// decodeOnce runs this program as one that only decodes.
func (s *scaled) decodeOnce() (float64, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(cleanEnv(), decodeVar+"="+s.kubeconfig())
	from := time.Now()
	p, err := controlplane.StartProcess(s.node(), nil, s.dir, "decode", cmd)
	if err != nil {
		return 0, err
	}
	select {
	case <-p.Ended():
	case <-s.ctx.Done():
		p.Kill()
		return 0, s.ctx.Err()
	}
	took := ms(time.Since(from))
	if !cmd.ProcessState.Success() {
		return 0, fmt.Errorf("decode: %s:\n%s", cmd.ProcessState, p.Tail())
	}
	return took, nil
}

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
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

// scaled is what the parts with a real API server share: etcd, kube-apiserver and
// whoever watches them run in one network namespace.
type scaled struct {
	*bench
	dir      string
	binaries string // of Kubernetes
	headgate string // the agent's
	topology *traffic.Topology
	cluster  *controlplane.Cluster
	rss      map[string]float64 // resident at rest, by program
}

// scale measures Headgate with a real API server, beside kube-proxy.
func (b *bench) scale() (err error) {
	s := &scaled{bench: b, rss: map[string]float64{}}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, part := range []func() error{s.prepare, s.load, s.coldStarts, s.residents, s.changes, s.sizes} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// kubernetes is what scale runs beside the agent.
var kubernetes = []string{controlplane.Etcd, controlplane.APIServer, controlplane.KubeProxy}

// prepare starts what is needed.
func (s *scaled) prepare() (err error) {
	if s.binaries, err = controlplane.Built(s.ctx, kubernetes...); err != nil {
		return err
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
	if err != nil {
		return err
	}
	s.cluster, err = controlplane.Start(s.ctx, controlplane.Config{
		Binaries: s.binaries, Dir: s.dir, Namespace: s.node(), ServiceCIDRs: []string{"10.96.0.0/12"},
	})
	return err
}

func (s *scaled) close() error {
	var errs []error
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close())
	}
	if s.topology != nil {
		errs = append(errs, s.topology.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// node is the network namespace that all of it is in.
func (s *scaled) node() *traffic.Namespace { return s.topology.Namespace(theNode) }

// cleanEnv is this process's environment as a user's would be.
func cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GODEBUG=") })
}

// agentCommand is the agent as a node runs it.
func (s *scaled) agentCommand(g *group, args ...string) *exec.Cmd {
	cmd := exec.Command(s.headgate, append([]string{"--bpf-root", g.root, "agent", "--kubeconfig", s.cluster.ProxyKubeconfig(),
		"--node-name", "node-a", "--cgroup", g.path, "--state-dir", filepath.Join(s.dir, g.name), "--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"}, args...)...)
	cmd.Env = cleanEnv()
	return cmd
}

// withAgent runs an agent on an empty node and calls a function once all of it is
// in the kernel, with how long that took.
func (s *scaled) withAgent(name string, args []string, f func(g *group, p *controlplane.Process, took time.Duration) error) (err error) {
	g, err := s.emptyNode(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, datapath.Cleanup(g.root), s.drop(g)) }()
	from := time.Now()
	p, err := controlplane.StartProcess(s.node(), nil, s.dir, name, s.agentCommand(g, args...))
	if err != nil {
		return err
	}
	defer p.Stop()
	if err := s.awaitLine(p, filepath.Join(s.dir, name+".log"), "ready"); err != nil {
		return err
	}
	return f(g, p, time.Since(from))
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

// coldStarts measures starts of processes: one that only receives and decodes
// every object, and the agent.
func (s *scaled) coldStarts() error {
	var decode, cold, ratios []float64
	for i := range s.plan.starts {
		if err := s.step("cold start %d of %d", i+1, s.plan.starts); err != nil {
			return err
		}
		var alone, whole float64
		parts := []func() error{
			func() (err error) { alone, err = s.decodeOnce(); return err },
			func() error {
				return s.withAgent(fmt.Sprintf("scale-%d", i), nil, func(_ *group, _ *controlplane.Process, took time.Duration) error {
					whole = ms(took)
					return nil
				})
			},
		}
		rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		for _, part := range parts {
			if err := part(); err != nil {
				return err
			}
		}
		decode, cold, ratios = append(decode, alone), append(cold, whole), append(ratios, whole/alone)
	}
	t := table{
		Title: fmt.Sprintf("A start with an API server that has %s Services, %d endpoints each, in as many slices", count(s.plan.big), endpointsEach),
		Note: "In ms, from the start of the process. The API server is kube-apiserver " + controlplane.Version + " with etcd, on the same machine and the same cores. " +
			"Decoding alone is a client that streams both kinds in protobuf, as the agent does, and drops them.",
		Header: []string{"what", "median", "quartiles"},
	}
	for _, v := range []struct {
		name, key, unit string
		of              []float64
	}{
		{"decoding alone", "decode", "ms", decode},
		{"agent, until all of it is in the kernel", "cold", "ms", cold},
		{"agent over decoding alone", "times_decoding", "×", ratios},
	} {
		sum := summary(v.of)
		t.row(v.name, fmt.Sprintf("%.2f", sum.Median), fmt.Sprintf("%.2f … %.2f", sum.Low, sum.High))
		s.report.add("scale/"+v.key, v.unit, sum)
	}
	s.report.table(t)
	return nil
}

// decodeOnce runs this program as one that only decodes.
func (s *scaled) decodeOnce() (float64, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(cleanEnv(), decodeVar+"="+s.cluster.ProxyKubeconfig())
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

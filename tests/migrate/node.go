package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/tests/controlplane"
	"github.com/headgate/headgate/tests/testenv"
)

// node is one of the world, with what runs on it.
type node struct {
	*world
	name      string
	mode      string // of its kube-proxy
	programs  programs
	kubeProxy *controlplane.Process
	agent     *controlplane.Process
	served    struct{ from, to time.Time } // by Headgate
}

func (n *node) stateDir() string { return filepath.Join(n.dir, n.name) }

// own are the flags of every command of headgate on the node.
func (n *node) own() []string {
	return []string{"--bpf-root", filepath.Join(n.dir, "bpf", n.name), "--state-dir", n.stateDir()}
}

const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: %s
clientConnection: {kubeconfig: %q}
detectLocalMode: ClusterCIDR
clusterCIDR: "10.244.0.0/16,fd00:10:244::/48"
healthzBindAddress: 0.0.0.0:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

func (n *node) startKubeProxy() (err error) {
	config := filepath.Join(n.dir, n.name+"-kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeProxyConfig, n.mode, n.name, n.cluster.ProxyKubeconfig()), 0o600); err != nil {
		return err
	}
	n.kubeProxy, err = n.start("kube-proxy", n.programs.others, "--config", config)
	return err
}

// startAgent starts the agent; flags are for an upgrade in place.
func (n *node) startAgent(flags ...string) (err error) {
	args := append(n.own(), "agent", "--kubeconfig", n.cluster.ProxyKubeconfig(), "--node-name", n.name, "--cgroup", n.cgroups[n.name].Path, "--conntrack-max-per-core=0")
	n.agent, err = n.start("headgate", n.programs.own, append(args, flags...)...)
	return err
}

// start starts a program on the node, in its cgroup.
func (n *node) start(name, dir string, args ...string) (*controlplane.Process, error) {
	return controlplane.StartProcess(n.namespace(n.name), n.cgroups[n.name], n.dir, n.name+"-"+name, exec.Command(filepath.Join(dir, name), args...))
}

// headgate runs a command of headgate on the node.
func (n *node) headgate(args ...string) *running {
	return n.begin(filepath.Join(n.programs.own, "headgate"), append(n.own(), args...)...)
}

// cleanKubeProxy removes kube-proxy's rules, as a person does.
func (n *node) cleanKubeProxy() error {
	return n.begin(filepath.Join(n.programs.others, "kube-proxy"), "--cleanup").wait()
}

// awaitAgent waits until the agent serves.
func (n *node) awaitAgent(ctx context.Context) error {
	for {
		err := n.headgate("ready").wait()
		if err == nil {
			return nil
		}
		select {
		case <-n.agent.Ended():
			return fmt.Errorf("the agent of %s has ended:\n%s", n.name, n.agent.Tail())
		case <-ctx.Done():
			return fmt.Errorf("the agent of %s does not serve: %w", n.name, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// running is a command that runs on a node.
type running struct {
	words string
	cmd   *exec.Cmd
	over  chan struct{}
	err   error // to be read after over
	out   testenv.LockedBuffer
}

// begin starts a command on the node.
func (n *node) begin(program string, args ...string) *running {
	r := &running{words: n.name + ": " + filepath.Base(program) + " " + strings.Join(args, " "), over: make(chan struct{})}
	cmd := exec.Command(program, args...)
	r.cmd, cmd.Stdout, cmd.Stderr = cmd, &r.out, &r.out
	n.cgroups[n.name].Adopt(cmd)
	if r.err = n.namespace(n.name).Start(cmd); r.err != nil {
		close(r.over)
		return r
	}
	go func() {
		r.err = cmd.Wait()
		close(r.over)
	}()
	return r
}

// kill ends the command at once.
func (r *running) kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	<-r.over
}

// wait returns when the command has ended.
func (r *running) wait() error {
	<-r.over
	if r.err != nil {
		return fmt.Errorf("%s: %w\n%s", r.words, r.err, r.out.String())
	}
	return nil
}

// await returns once the command has said something.
func (r *running) await(ctx context.Context, words string) error {
	for !strings.Contains(r.out.String(), words) {
		select {
		case <-r.over:
			if strings.Contains(r.out.String(), words) {
				return nil
			}
			return fmt.Errorf("%s ended (%v) without %q:\n%s", r.words, r.err, words, r.out.String())
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: it said\n%s", r.words, ctx.Err(), r.out.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

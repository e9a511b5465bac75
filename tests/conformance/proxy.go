package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A proxy is one that is judged, and a column of the table.
type proxy struct {
	name  string
	title string
	how   kind
	flags []string // of the agent, beside those that the lab needs; each node has the same
	// carries says that packets go to other nodes within an outer header: a run in which
	// none did has shown nothing.
	carries bool
}

// kind is how a proxy comes to a node.
type kind int

const (
	byAgent     kind = iota // of this checkout, a process of the node
	byImage                 // of Headgate, as the DaemonSet of deploy/
	byKubeProxy             // in the mode that has its name
)

// proxies are in the order of the columns.
var proxies = []proxy{
	{name: "nftables", title: "kube-proxy nftables", how: byKubeProxy},
	{name: "iptables", title: "kube-proxy iptables", how: byKubeProxy},
	{name: "headgate", title: "Headgate"},
	{name: "headgate-dsr", title: "Headgate with --forwarding dsr", flags: []string{"--forwarding", "dsr"}, carries: true},
	{name: "headgate-image", title: "Headgate, the image by deploy/", how: byImage},
}

func proxyNamed(name string) (proxy, error) {
	for _, p := range proxies {
		if p.name == name {
			return p, nil
		}
	}
	return proxy{}, fmt.Errorf("unknown -proxy %q", name)
}

// judged is the proxy of the run: its name was checked.
func (l *lab) judged() proxy {
	p, _ := proxyNamed(l.Proxy)
	return p
}

// startProxies starts what is judged, on every node.
func (l *lab) startProxies(nodes []*process) ([]*process, error) {
	say("start %s on %d nodes", l.Proxy, l.Nodes)
	switch l.judged().how {
	case byImage:
		return nil, l.deploy(nodes)
	case byAgent:
		// Its rights are those that it is deployed with.
		if err := l.kubectl("", "apply", "-n", "kube-system", "-f", filepath.Join(l.Repo, "deploy/base/rbac.yaml")); err != nil {
			return nil, err
		}
	}
	var all []*process
	for n, node := range nodes {
		argv, err := l.proxyOf(nodeName(n + 1))
		if err != nil {
			return nil, err
		}
		p, err := l.startOn(node, "proxy-"+node.name, argv...)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// proxyOf is the command line of a node's proxy.
func (l *lab) proxyOf(node string) ([]string, error) {
	if p := l.judged(); p.how == byAgent {
		argv := append([]string{l.headgate(), "agent", "--kubeconfig", l.in("headgate.kubeconfig"), "--node-name", node}, p.flags...)
		if !p.carries {
			return argv, nil
		}
		key := l.in("hash-key")
		return append(argv, "--hash-key-file", key), os.WriteFile(key, []byte("the same on all nodes, and long enough"), 0o600)
	}
	config := l.in(node, "kube-proxy.yaml")
	fields := map[string]any{"Mode": l.Proxy, "Node": node, "Kubeconfig": l.in("kube-proxy.kubeconfig"), "Pods": l.podCIDRs()}
	return []string{l.bin("kube-proxy"), "--config", config}, l.render("kube-proxy.yaml", config, fields)
}

// carried returns how many packets all nodes have carried to others.
func (l *lab) carried() (packets uint64, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	for n := 1; n <= l.Nodes; n++ {
		out, err := exec.Command(self, "into", l.Run, nodeName(n), l.headgate(), "peer", "list", "-j").Output()
		if err != nil {
			return 0, fmt.Errorf("ask %s for its peers: %w", nodeName(n), err)
		}
		var peers struct {
			Items []struct{ Counts struct{ Carried uint64 } }
		}
		if err := json.Unmarshal(out, &peers); err != nil {
			return 0, fmt.Errorf("read the peers of %s: %w", nodeName(n), err)
		}
		for _, p := range peers.Items {
			packets += p.Counts.Carried
		}
	}
	return packets, nil
}

// startOn starts a program in the namespaces and the control group of a node.
func (l *lab) startOn(node *process, name string, argv ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	into := append([]string{self, "into", l.Run, node.name}, argv...)
	return l.start(name, into...)
}

// deploy applies deploy/ as docs/install.md says, and waits for the DaemonSet.
func (l *lab) deploy(nodes []*process) error {
	dir := l.in("deploy")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	base, err := filepath.Rel(dir, filepath.Join(l.Repo, l.Overlay))
	if err != nil {
		return err
	}
	for _, name := range []string{"kustomization.yaml", "headgate.yaml"} {
		if err := l.render(name, filepath.Join(dir, name), map[string]any{"Base": base, "Server": server}); err != nil {
			return err
		}
	}
	if err := l.kubectl("", "apply", "-k", dir); err != nil {
		return err
	}
	return eventually("the DaemonSet runs", 3*time.Minute, nodes, func() error {
		return l.kubectl("", "-n", "kube-system", "rollout", "status", "daemonset/headgate", "--timeout=1s")
	})
}

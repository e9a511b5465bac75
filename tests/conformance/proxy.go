package main

import (
	"os"
	"path/filepath"
	"time"
)

// startProxies starts what is judged, on every node.
func (l *lab) startProxies(nodes []*process) ([]*process, error) {
	say("start %s on %d nodes", l.Proxy, l.Nodes)
	switch l.Proxy {
	case "headgate-image":
		return nil, l.deploy(nodes)
	case "headgate":
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
	if l.Proxy == "headgate" {
		return []string{l.headgate(), "agent", "--kubeconfig", l.in("headgate.kubeconfig"), "--node-name", node}, nil
	}
	config := l.in(node, "kube-proxy.yaml")
	fields := map[string]any{"Mode": l.Proxy, "Node": node, "Kubeconfig": l.in("kube-proxy.kubeconfig"), "Pods": l.podCIDRs()}
	return []string{l.bin("kube-proxy"), "--config", config}, l.render("kube-proxy.yaml", config, fields)
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

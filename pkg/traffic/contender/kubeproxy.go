package contender

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kubeProxyConfig is what kube-proxy is told; the rest is as it ships. Limits of
// connection tracking are the whole machine's.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: %s
clientConnection: {kubeconfig: %q, contentType: application/json, acceptContentTypes: application/json}
detectLocalMode: ClusterCIDR
clusterCIDR: "%s,%s"
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0}
`

const kubeProxyKubeconfig = `apiVersion: v1
kind: Config
current-context: bench
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
clusters: [{name: bench, cluster: {server: "http://%s"}}]
users: [{name: bench, user: {}}]
`

// outside says that clients are not on the node, and Services have addresses of a
// load balancer.
func (p *Contender) outside() bool { return p.Spec.Topology == "pair" }

// startKubeProxy starts kube-proxy on the node, with an API server of the node
// that has the Services.
func (p *Contender) startKubeProxy(mode string) error {
	var l net.Listener
	if err := p.site.Topology.Namespace(p.node).Do(func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		return err
	}
	p.api = newAPIServer()
	p.api.nodes.items = [][]byte{nodeObject(p.node, p.site.Topology.Machine(p.node).Addrs).text()}
	for _, s := range p.services {
		p.api.services.items = append(p.api.services.items, serviceObject(s, p.outside()).text())
		p.api.slices.items = append(p.api.slices.items, sliceObject(s, allReady(s), p.node).text())
	}
	p.api.start(l)
	p.undo = append(p.undo, p.api.Close)
	kubeconfig, config := filepath.Join(p.dir, "kubeconfig"), filepath.Join(p.dir, "kube-proxy.yaml")
	for path, text := range map[string]string{
		kubeconfig: fmt.Sprintf(kubeProxyKubeconfig, l.Addr()),
		config:     fmt.Sprintf(kubeProxyConfig, mode, p.node, kubeconfig, netsOf(false).pods, netsOf(true).pods),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return p.startProcess(p.Spec.KubeProxy, "--config", config)
}

// changeAPIServer has the API server tell of changes.
func (p *Contender) changeAPIServer(_ context.Context, before, after []version) error {
	for i, v := range after {
		event := map[[2]bool]string{{true, false}: "ADDED", {false, true}: "DELETED", {false, false}: "MODIFIED"}[[2]bool{before[i].deleted, v.deleted}]
		if event == "" {
			continue
		}
		if event != "MODIFIED" {
			p.api.services.change(event, serviceObject(v.service, p.outside()))
		}
		p.api.slices.change(event, sliceObject(v.service, v.members, p.node))
	}
	return nil
}

// KubeProxyVersion returns what a kube-proxy says that it is.
func KubeProxyVersion(path string) (string, error) {
	out, err := exec.Command(path, "--version").Output()
	version, ok := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	if err != nil || !ok {
		return "", fmt.Errorf("kube-proxy %s: it does not say its version (%v): name the program of that name", path, err)
	}
	return version, nil
}

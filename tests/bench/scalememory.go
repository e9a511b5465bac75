package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/tests/controlplane"
)

// restTime is how long a process is left alone before its memory is looked at.
const restTime = 15 * time.Second

// residents measures the memory of the agent and of kube-proxy, one after the
// other, with the same objects.
func (s *scaled) residents() error {
	t := table{
		Title:  fmt.Sprintf("Memory of the process with an API server that has %s Services, %d endpoints each", count(s.plan.big), endpointsEach),
		Note:   fmt.Sprintf("KiB. Resident memory %s after everything was programmed; \"anonymous\" is that without the program itself. What the kernel holds is not in it: maps there, rules here.", restTime),
		Header: []string{"process", "resident", "of that anonymous", "most ever"},
	}
	if err := s.step("memory of the agent"); err != nil {
		return err
	}
	if err := s.withAgent("scale-memory", nil, func(_ *group, p *controlplane.Process, _ time.Duration) error {
		return s.resident(&t, "headgate", p)
	}); err != nil {
		return err
	}
	if err := s.step("memory of kube-proxy"); err != nil {
		return err
	}
	if err := s.withKubeProxy(func(p *controlplane.Process) error { return s.resident(&t, controlplane.KubeProxy, p) }); err != nil {
		return err
	}
	s.report.value("scale/memory_beside_kube_proxy", "×", s.rss["headgate"]/s.rss[controlplane.KubeProxy])
	s.report.table(t)
	return nil
}

// resident adds a line about a process that has come to rest.
func (s *scaled) resident(t *table, name string, p *controlplane.Process) error {
	select {
	case <-p.Ended():
		return fmt.Errorf("%s ended:\n%s", name, p.Tail())
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(restTime):
	}
	rss, anonymous, most := statusKiB(p.PID(), "VmRSS"), statusKiB(p.PID(), "RssAnon"), statusKiB(p.PID(), "VmHWM")
	t.row(name, kib(rss), kib(anonymous), kib(most))
	s.rss[name] = rss
	s.report.value("scale/memory/"+name+"/resident", "B", rss)
	s.report.value("scale/memory/"+name+"/most", "B", most)
	return nil
}

// kubeProxyConfig is what kube-proxy is told; the rest is as it ships.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: node-a
clientConnection: {kubeconfig: %q}
detectLocalMode: ClusterCIDR
clusterCIDR: 10.128.0.0/9
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0}
`

// withKubeProxy runs kube-proxy and calls a function once it has programmed
// everything.
func (s *scaled) withKubeProxy(f func(*controlplane.Process) error) error {
	config := filepath.Join(s.dir, "kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeProxyConfig, s.cluster.ProxyKubeconfig()), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(s.binaries, controlplane.KubeProxy), "--config", config)
	cmd.Env = cleanEnv()
	p, err := controlplane.StartProcess(s.node(), nil, s.dir, controlplane.KubeProxy, cmd)
	if err != nil {
		return err
	}
	defer p.Stop()
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Minute)
	defer cancel()
	for {
		// The time of the last success is 0 before the first one.
		if v, err := s.metric(ctx, "kubeproxy_sync_proxy_rules_last_timestamp_seconds"); err == nil && v > 0 {
			return f(p)
		}
		select {
		case <-p.Ended():
			return fmt.Errorf("kube-proxy ended:\n%s", p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("kube-proxy has not programmed anything: %w; the end of its log:\n%s", ctx.Err(), p.Tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// metric returns the sum of a metric of whoever serves metrics on the node.
func (s *scaled) metric(ctx context.Context, name string) (sum float64, err error) {
	client := http.Client{Transport: &http.Transport{DialContext: controlplane.Dialer(s.node()), DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text := new(strings.Builder)
	if err := answer.Write(text); err != nil {
		return 0, err
	}
	found := false
	for line := range strings.Lines(text.String()) {
		var v float64
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if _, err := fmt.Sscan(rest[strings.LastIndexByte(strings.TrimSpace(rest), ' ')+1:], &v); err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum, nil
}

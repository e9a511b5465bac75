package main

import (
	"context"
	"errors"
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
const restTime = 10 * time.Second

// scrapes is how often metrics are asked for before that.
const scrapes = 3

// scaleTables are what the clusters are lines of.
type scaleTables struct{ rest, changes table }

func newScaleTables() *scaleTables {
	return &scaleTables{
		rest: table{
			Title: "From an API server: start, and memory at rest",
			Note: "Medians of cold starts, from the start of the process; decoding alone is a client that streams Services and EndpointSlices in protobuf and drops them. " +
				fmt.Sprintf("Memory is that of the process, after %d scrapes and %s of rest: MiB resident, of that anonymous, and most ever. What the kernel holds is not in it: maps there, rules here. ", scrapes, restTime) +
				"Idle is the CPU time of another such rest, of one core; a scrape is CPU time, with what returning the memory takes that it took. Objects are as controllers write them; the API server is one of ours, on the same cores.",
			Header: []string{"Services × endpoints", "decoding alone, ms", "ready, ms", "×", "CPU, s", "resident", "anonymous", "most", "idle, %", "a scrape, ms"},
		},
		changes: table{
			Title: "From an API server: watch event to map",
			Note: "In µs, from when the event is handed to the connection of the agent until the frontend in the map names the new table, which is looked at each 20 µs or so. " +
				"CPU is that of the agent while it goes on: of one core, and µs for each change.",
			Header: []string{"Services × endpoints", "changes", "p50", "p99", "p99.9", "worst", "CPU, %", "CPU each"},
		},
	}
}

// rests measures an agent that has nothing to do, and what a scrape costs: with what the agent does
// later on to return the memory that scrapes took.
func (s *scaled) rests(c shape, a *scaledAgent, start coldStart, t *scaleTables) error {
	if err := s.step("%s endpoints: rest", c); err != nil {
		return err
	}
	if err := s.rest(a.Process); err != nil { // the sweep
		return err
	}
	scraped, err := spends(a.Process, func() error {
		for range scrapes {
			if _, err := s.metric(s.ctx, "go_memstats_mallocs_total"); err != nil {
				return err
			}
		}
		return s.rest(a.Process)
	})
	if err != nil {
		return err
	}
	idle, err := s.idle(c, a)
	if err != nil {
		return err
	}
	scrape := max(0, scraped-idle) / scrapes * 1e3
	idle = idle / restTime.Seconds() * 100
	s.report.value(c.key()+"scrape", "ms", scrape)
	cells := []string{c.String(), us(summary(start.decode).Median), us(summary(start.agent).Median),
		fmt.Sprintf("%.2f", ratio(start.agent, start.decode).Median), fmt.Sprintf("%.1f", summary(start.cpu).Median)}
	t.rest.row(append(append(cells, s.resident(c.key()+"agent/", a.PID())...), fmt.Sprintf("%.2f", idle), tenth(scrape))...)
	return nil
}

// idle returns the CPU time that an agent takes while nothing happens, and notes that of a client which
// receives the same and does nothing with it.
func (s *scaled) idle(c shape, a *scaledAgent) (agent float64, err error) {
	f, err := s.startFollower()
	if err != nil {
		return 0, err
	}
	defer f.Kill()
	if err := s.rest(f); err != nil { // what it took to begin
		return 0, err
	}
	follower, err := spends(f, func() (err error) {
		agent, err = spends(a.Process, func() error { return s.rest(a.Process) })
		return err
	})
	s.report.value(c.key()+"idle", "%", agent/restTime.Seconds()*100)
	s.report.value(c.key()+"following/resident", "MiB", statusKiB(f.PID(), "VmRSS")/(1<<20))
	s.report.value(c.key()+"following/idle", "%", follower/restTime.Seconds()*100)
	return agent, err
}

// spends returns the CPU time that a process takes while a function runs, in seconds.
func spends(p *controlplane.Process, f func() error) (float64, error) {
	before, err := cpuTime(p.PID())
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := cpuTime(p.PID())
	return after - before, err
}

// rest leaves a process alone for a while.
func (s *scaled) rest(p *controlplane.Process) error {
	select {
	case <-p.Ended():
		return fmt.Errorf("a process ended:\n%s", p.Tail())
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(restTime):
		return nil
	}
}

// resident returns what a process has in memory, in MiB.
func (s *scaled) resident(key string, pid int) (cells []string) {
	for _, field := range [][2]string{{"resident", "VmRSS"}, {"anonymous", "RssAnon"}, {"most", "VmHWM"}} {
		mib := statusKiB(pid, field[1]) / (1 << 20)
		s.report.value(key+field[0], "MiB", mib)
		cells = append(cells, us(mib))
	}
	return cells
}

// besideKubeProxy measures kube-proxy with the objects of a cluster, if it has programmed them within the time
// that there is for it.
func (s *scaled) besideKubeProxy(c shape, t *scaleTables) (err error) {
	if err := s.serve(c); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.api.close()) }()
	if err := s.step("%s endpoints: kube-proxy", c); err != nil {
		return err
	}
	return s.withKubeProxy(func(p *controlplane.Process, fate string, ready time.Duration) error {
		cells := []string{c.String() + ", kube-proxy " + controlplane.Version + ", nftables", ""}
		if fate != "" {
			t.rest.row(append(cells, fate, "", "", "", "", "", "", "")...)
			return nil
		}
		cpu, err := cpuTime(p.PID())
		if err == nil {
			err = s.rest(p)
		}
		if err != nil {
			return err
		}
		s.report.value(c.key()+"kube-proxy/ready", "ms", ms(ready))
		t.rest.row(append(append(append(cells, us(ms(ready)), "", tenth(cpu)), s.resident(c.key()+"kube-proxy/", p.PID())...), "", "")...)
		s.report.value(c.key()+"memory_beside_kube_proxy", "×",
			s.report.Figures[c.key()+"agent/resident"].Median/s.report.Figures[c.key()+"kube-proxy/resident"].Median)
		return nil
	})
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

// withKubeProxy runs kube-proxy and calls a function once it has programmed everything, or with what
// became of it instead.
func (s *scaled) withKubeProxy(f func(p *controlplane.Process, fate string, ready time.Duration) error) (err error) {
	config := filepath.Join(s.dir, "kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeProxyConfig, s.kubeconfig()), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(s.kubeProxy, "--config", config)
	cmd.Env = cleanEnv()
	from := time.Now()
	p, err := controlplane.StartProcess(s.node(), nil, s.dir, controlplane.KubeProxy, cmd)
	if err != nil {
		return err
	}
	defer func() { p.Stop(); err = errors.Join(err, s.clearRules()) }()
	fate, err := s.awaitKubeProxy(p, from)
	if err != nil {
		return err
	}
	return f(p, fate, time.Since(from))
}

// noRules leaves nothing of kube-proxy's tables, whether or not they are there.
const noRules = "add table ip kube-proxy; delete table ip kube-proxy; add table ip6 kube-proxy; delete table ip6 kube-proxy"

// clearRules removes the rules that kube-proxy has left: others are not to be measured beside them.
func (s *scaled) clearRules() error {
	cmd := exec.Command("nft", noRules)
	p, err := controlplane.StartProcess(s.node(), nil, s.dir, "nft", cmd)
	if err != nil {
		return err
	}
	<-p.Ended()
	if !cmd.ProcessState.Success() {
		return fmt.Errorf("remove the rules of kube-proxy: %s:\n%s", cmd.ProcessState, p.Tail())
	}
	return nil
}

// awaitKubeProxy returns when kube-proxy has programmed everything, or what became of it instead.
func (s *scaled) awaitKubeProxy(p *controlplane.Process, from time.Time) (fate string, err error) {
	for limit := time.After(s.plan.kubeProxyTime); ; {
		// The time of the last success is 0 before the first one.
		if v, err := s.metric(s.ctx, "kubeproxy_sync_proxy_rules_last_timestamp_seconds"); err == nil && v > 0 {
			return "", nil
		}
		select {
		case <-p.Ended():
			return fmt.Sprintf("ended after %.0f s", time.Since(from).Seconds()), nil
		case <-limit:
			return fmt.Sprintf("not within %.0f s", s.plan.kubeProxyTime.Seconds()), nil
		case <-s.ctx.Done():
			return "", s.ctx.Err()
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

package preflight

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// usualMetrics is where a kube-proxy says its mode unless it is told another address, and
// modeTimeout how long that is waited for.
const (
	usualMetrics = "127.0.0.1:10249"
	modeTimeout  = 5 * time.Second
)

// KubeProxy is the kube-proxy of this node.
type KubeProxy struct {
	Runs    bool   `json:"runs"`
	Process string `json:"process,omitempty"` // with its ID; "" for one in a process of another name
	Mode    string `json:"mode,omitempty"`    // "" where it is not known
	asked   string // host:port where it was asked for its mode
}

// String says which kube-proxy it is, and in which mode.
func (p KubeProxy) String() string {
	mode := "its mode is not known"
	if p.Mode != "" {
		mode = "in mode " + p.Mode
	}
	switch {
	case !p.Runs:
		return "none runs here"
	case p.Process == "":
		return "something answers as kube-proxy on " + p.asked + ", " + mode
	default:
		return p.Process + " runs, " + mode
	}
}

// FindKubeProxy looks for a kube-proxy in the network namespace of the calling thread. One in
// a process of another name is found if it serves metrics at a host:port, "" for the usual one.
func FindKubeProxy(ctx context.Context, metrics string) KubeProxy {
	return findKubeProxy(ctx, readProcesses(), cmp.Or(metrics, usualMetrics))
}

func findKubeProxy(ctx context.Context, procs []process, metrics string) KubeProxy {
	at := slices.IndexFunc(procs, func(p process) bool { return p.name == KubeProxyName && p.isHere() })
	mode := askMode(ctx, metrics)
	if at < 0 {
		return KubeProxy{Runs: mode != "", Mode: mode, asked: metrics}
	}
	return KubeProxy{Runs: true, asked: metrics, Process: procs[at].String(), Mode: cmp.Or(mode, procs[at].argument("--proxy-mode"))}
}

// kubeProxy says whether a kube-proxy runs.
func (r *Report) kubeProxy(ctx context.Context, procs []process) KubeProxy {
	p := findKubeProxy(ctx, procs, usualMetrics)
	if p.Runs {
		r.add(kubeProxyRuns, "%s", p)
	} else {
		r.ok("kube-proxy", "%s", p)
	}
	return p
}

// askMode asks the kube-proxy of this node for its mode, "" for no answer. k3s and others
// have one in a process of another name.
func askMode(ctx context.Context, metrics string) string {
	ctx, cancel := context.WithTimeout(ctx, modeTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metrics+"/proxyMode", nil)
	if err != nil {
		return ""
	}
	answer, err := http.DefaultTransport.RoundTrip(q)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64))
	mode := strings.TrimSpace(string(text))
	if err != nil || !slices.Contains([]string{modeIPTables, modeNFTables, modeIPVS}, mode) {
		return ""
	}
	return mode
}

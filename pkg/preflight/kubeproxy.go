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

// proxyModes is where a kube-proxy says its mode, and modeTimeout how long that is waited for.
const (
	proxyModes  = "http://127.0.0.1:10249/proxyMode"
	modeTimeout = 5 * time.Second
)

// KubeProxy is the kube-proxy of this node.
type KubeProxy struct {
	Runs    bool   `json:"runs"`
	Process string `json:"process,omitempty"` // with its ID; "" for one in a process of another name
	Mode    string `json:"mode,omitempty"`    // "" where it is not known
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
		return "something answers as kube-proxy on 127.0.0.1:10249, " + mode
	default:
		return p.Process + " runs, " + mode
	}
}

// FindKubeProxy looks for a kube-proxy in the network namespace of the calling thread.
func FindKubeProxy(ctx context.Context) KubeProxy { return findKubeProxy(ctx, readProcesses()) }

func findKubeProxy(ctx context.Context, procs []process) KubeProxy {
	at := slices.IndexFunc(procs, func(p process) bool { return p.name == KubeProxyName && p.isHere() })
	mode := askMode(ctx)
	if at < 0 {
		return KubeProxy{Runs: mode != "", Mode: mode}
	}
	return KubeProxy{Runs: true, Process: procs[at].String(), Mode: cmp.Or(mode, procs[at].argument("--proxy-mode"))}
}

// kubeProxy says whether a kube-proxy runs.
func (r *Report) kubeProxy(ctx context.Context, procs []process) KubeProxy {
	p := findKubeProxy(ctx, procs)
	if p.Runs {
		r.add(kubeProxyRuns, "%s", p)
	} else {
		r.ok("kube-proxy", "%s", p)
	}
	return p
}

// askMode asks the kube-proxy of this node for its mode, "" for no answer. k3s and others
// have one in a process of another name.
func askMode(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, modeTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, proxyModes, nil)
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

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

// proxy is the kube-proxy of this node.
type proxy struct {
	runs bool
	mode string // "" where it is not known
}

// kubeProxy says whether a kube-proxy runs.
func (r *Report) kubeProxy(ctx context.Context, procs []process) proxy {
	at := slices.IndexFunc(procs, func(p process) bool { return p.name == kubeProxyName && p.isHere() })
	mode := askMode(ctx)
	switch {
	case at >= 0:
		mode = cmp.Or(mode, procs[at].argument("--proxy-mode"))
		r.add(kubeProxyRuns, "%s runs, %s", procs[at], inMode(mode))
	case mode != "":
		r.add(kubeProxyRuns, "something answers as kube-proxy on 127.0.0.1:10249, %s", inMode(mode))
	default:
		r.ok("kube-proxy", "none runs here")
		return proxy{}
	}
	return proxy{runs: true, mode: mode}
}

func inMode(mode string) string {
	if mode == "" {
		return "its mode is not known"
	}
	return "in mode " + mode
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

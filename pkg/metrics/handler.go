package metrics

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// proxyMode is what /proxyMode answers. kube-proxy says "nftables" and the like;
// Headgate is none of these.
const proxyMode = "headgate"

// HandlerConfig says what is answered beside the metrics.
type HandlerConfig struct {
	// Config returns what runs, for /configz; it is written as JSON. Nil
	// means that there is no /configz.
	Config    func() any
	Profiling bool // answer on /debug/pprof/
}

// Handler returns what is to be served on metricsBindAddress: /metrics,
// /metrics/slis, /healthz, /proxyMode and what the configuration asks for.
func (m *Metrics) Handler(cfg HandlerConfig) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		// What can be read is better than nothing; what cannot is an error
		// of the scrape for all that.
		ErrorHandling: promhttp.ContinueOnError,
		Registry:      m.registry, // promhttp_metric_handler_errors_total
	}))
	mux.Handle("/metrics/slis", promhttp.HandlerFor(m.slis.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", m.slis.observed(text("ok")))
	mux.HandleFunc("/proxyMode", text(proxyMode))
	if cfg.Config != nil {
		mux.HandleFunc("/configz", func(w http.ResponseWriter, _ *http.Request) { writeConfig(w, cfg.Config()) })
	}
	if cfg.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// text answers always the same.
func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, body) // the client may be gone
	}
}

func writeConfig(w http.ResponseWriter, cfg any) {
	body, err := json.Marshal(cfg)
	if err != nil {
		http.Error(w, "write the configuration: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // the client may be gone
}

package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// slis are what Kubernetes' components say of their own health on /metrics/slis
// (KEP-3466): the last result of each check, and how often each came.
type slis struct {
	registry *prometheus.Registry
	last     *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

// Names of the health checks.
const (
	pingCheck  = "ping"  // the process answers, as kube-proxy has it
	proxyCheck = "proxy" // changes reach the kernel in time
)

func newSLIs() slis {
	r := &registrar{prometheus.NewRegistry()}
	return slis{
		registry: r.Registry,
		last:     r.gaugeVec("kubernetes_healthcheck", "The last result of a health check: 1 is healthy.", "name", "type"),
		total:    r.counterVec("kubernetes_healthchecks_total", "Results of health checks.", "name", "type", "status"),
	}
}

// observe notes the result of a health check; typ is the path that asked.
func (s *slis) observe(name, typ string, healthy bool) {
	value, status := 0.0, "error"
	if healthy {
		value, status = 1, "success"
	}
	s.last.WithLabelValues(name, typ).Set(value)
	s.total.WithLabelValues(name, typ, status).Inc()
}

// observed notes that a check was asked, which succeeds by being answered.
func (s *slis) observed(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.observe(pingCheck, "healthz", true)
		answer(w, r)
	}
}

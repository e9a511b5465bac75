package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// client are the metrics of a Kubernetes client: names, labels and buckets are
// those of its components (k8s.io/component-base/metrics/prometheus/restclient).
type client struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	throttled *prometheus.HistogramVec
}

func newClient(r *registrar) client {
	buckets := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	return client{
		requests:  r.counterVec("rest_client_requests_total", "Requests to an API server by status code, method and host.", "code", "method", "host"),
		durations: r.histogram("rest_client_request_duration_seconds", "Duration of requests to an API server, of a watch until it began.", buckets, "verb", "host"),
		throttled: r.histogram("rest_client_rate_limiter_duration_seconds", "Time that requests to an API server waited for --kube-api-qps.", buckets, "verb", "host"),
	}
}

// Requested says how a request to an API server ended.
func (m *Metrics) Requested(method, host, code string, took time.Duration) {
	m.client.requests.WithLabelValues(code, method, host).Inc()
	m.client.durations.WithLabelValues(method, host).Observe(took.Seconds())
}

// Throttled says how long a request to an API server waited for its turn.
func (m *Metrics) Throttled(method, host string, took time.Duration) {
	m.client.throttled.WithLabelValues(method, host).Observe(took.Seconds())
}

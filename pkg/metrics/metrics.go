// Package metrics is what a Prometheus server reads of an agent: the metrics of
// kube-proxy that mean the same here, under their names, and Headgate's own as
// headgate_. It also answers the other questions that kube-proxy answers on its
// metrics port.
//
// Every Metrics has a registry of its own; nothing here is global.
package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/headgate/headgate/pkg/lb"
)

// Metrics are the metrics of one agent. Its methods may be called at any time
// from anywhere.
type Metrics struct {
	registry *prometheus.Registry
	proxy    kubeproxy
	client   client
	slis     slis

	reconcileErrors prometheus.Counter
	restored        prometheus.Counter
	problems        *prometheus.GaugeVec
}

// New returns metrics of an agent to which nothing has happened yet.
func New(version string) *Metrics {
	r := &registrar{prometheus.NewRegistry()}
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	r.gaugeVec("headgate_build_info", "Always 1; the labels are the versions of the agent and of Go.", "version", "go_version").
		WithLabelValues(version, runtime.Version()).Set(1)
	return &Metrics{
		registry:        r.Registry,
		proxy:           newKubeproxy(r),
		client:          newClient(r),
		slis:            newSLIs(),
		reconcileErrors: r.counter("headgate_reconcile_errors_total", "Failed attempts to write changes into the kernel; each is tried again."),
		restored:        r.counter("headgate_programs_restored_total", "Programs and sets of pins that the agent restored after another process removed them."),
		problems:        r.gaugeVec("headgate_problems", "Problems that stand, as headgate status lists them, by scope: the node itself, an object (a Service, say), or a backend that clients avoid.", "scope"),
	}
}

// CountReconcileError counts an attempt that failed.
func (m *Metrics) CountReconcileError() { m.reconcileErrors.Inc() }

// CountRestored counts what was put back in force.
func (m *Metrics) CountRestored(n int) { m.restored.Add(float64(n)) }

// SetProblems says everything that is wrong now.
func (m *Metrics) SetProblems(problems []lb.Problem) {
	// Zeros are shown too, so that an alert can tell none from not known.
	counts := map[lb.Scope]int{lb.ScopeNode: 0, lb.ScopeObject: 0, lb.ScopeBackend: 0}
	for _, p := range problems {
		counts[p.Scope]++
	}
	for scope, n := range counts {
		m.problems.WithLabelValues(scope.String()).Set(float64(n))
	}
}

// registrar makes metrics and registers them.
type registrar struct{ *prometheus.Registry }

func (r *registrar) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	r.MustRegister(c)
	return c
}

func (r *registrar) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.MustRegister(c)
	return c
}

func (r *registrar) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	r.MustRegister(g)
	return g
}

func (r *registrar) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.MustRegister(g)
	return g
}

func (r *registrar) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	r.MustRegister(h)
	return h
}

package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/pkg/lb"
)

// kubeproxy are the metrics of kube-proxy that mean the same here: names,
// labels and buckets are kube-proxy's (k8s.io/kubernetes/pkg/proxy/metrics), so
// that its dashboards and the network programming SLO go on working.
type kubeproxy struct {
	syncDuration        *prometheus.HistogramVec
	fullSyncDuration    *prometheus.HistogramVec
	partialSyncDuration *prometheus.HistogramVec
	lastSync            *prometheus.GaugeVec
	lastQueued          *prometheus.GaugeVec
	programming         *prometheus.HistogramVec
	endpointsPending    prometheus.Gauge
	endpointsTotal      prometheus.Counter
	servicesPending     prometheus.Gauge
	servicesTotal       prometheus.Counter
	noLocalEndpoints    *prometheus.GaugeVec
	healthz             *prometheus.CounterVec
	livez               *prometheus.CounterVec
}

// syncBuckets are 1 ms to 16.4 s.
func syncBuckets() []float64 { return prometheus.ExponentialBuckets(0.001, 2, 15) }

// programmingBuckets are fine up to a minute and coarse up to five.
func programmingBuckets() []float64 {
	return slices.Concat(
		prometheus.LinearBuckets(0.25, 0.25, 2),
		prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12),
		prometheus.LinearBuckets(120, 30, 7),
	)
}

func newKubeproxy(r *registrar) kubeproxy {
	const family = "ip_family"
	k := kubeproxy{
		syncDuration:        r.histogram("kubeproxy_sync_proxy_rules_duration_seconds", "Duration of writes of changes into the kernel.", syncBuckets(), family),
		fullSyncDuration:    r.histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "Duration of comparisons of everything with the kernel, and of the corrections.", syncBuckets(), family),
		partialSyncDuration: r.histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "Duration of writes of only the changes into the kernel.", syncBuckets(), family),
		lastSync:            r.gaugeVec("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "Unix time of the last write of changes into the kernel.", family),
		lastQueued:          r.gaugeVec("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "Unix time at which a change was last queued for the kernel.", family),
		programming:         r.histogram("kubeproxy_network_programming_duration_seconds", "Time from the change of a Service or pod until it was in the kernel.", programmingBuckets(), family),
		endpointsPending:    r.gauge("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "Changes of endpoints that are not in the kernel yet."),
		endpointsTotal:      r.counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Changes of endpoints received."),
		servicesPending:     r.gauge("kubeproxy_sync_proxy_rules_service_changes_pending", "Changes of Services that are not in the kernel yet."),
		servicesTotal:       r.counter("kubeproxy_sync_proxy_rules_service_changes_total", "Changes of Services received."),
		noLocalEndpoints:    r.gaugeVec("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "Service ports with a Local traffic policy and no endpoint on this node.", "traffic_policy", family),
		healthz:             r.counterVec("kubeproxy_proxy_healthz_total", "Answers on /healthz by status code.", "code"),
		livez:               r.counterVec("kubeproxy_proxy_livez_total", "Answers on /livez by status code.", "code"),
	}
	// A series that begins with its first observation hides that one from rate().
	for _, f := range []lb.Family{lb.IPv4, lb.IPv6} {
		k.programming.WithLabelValues(string(f))
	}
	return k
}

// Sync is an attempt to bring changes of one family into the kernel.
type Sync struct {
	Family lb.Family
	Full   bool // everything was looked at, not only what changed
	Failed bool
	End    time.Time
	Took   time.Duration
}

// ObserveSync says that changes were brought into the kernel, or that it
// failed.
func (m *Metrics) ObserveSync(s Sync) {
	family, took := string(s.Family), s.Took.Seconds()
	m.proxy.syncDuration.WithLabelValues(family).Observe(took)
	if s.Full {
		m.proxy.fullSyncDuration.WithLabelValues(family).Observe(took)
	} else {
		m.proxy.partialSyncDuration.WithLabelValues(family).Observe(took)
	}
	if !s.Failed {
		m.proxy.lastSync.WithLabelValues(family).Set(unix(s.End))
	}
}

// ObserveQueued says that there is something to bring into the kernel.
func (m *Metrics) ObserveQueued(f lb.Family, now time.Time) {
	m.proxy.lastQueued.WithLabelValues(string(f)).Set(unix(now))
}

// ObserveProgramming says that a change of endpoints is in the kernel now.
// Trigger is when it happened, from the annotation
// endpoints.kubernetes.io/last-change-trigger-time of the EndpointSlice; the
// zero time, which says nothing, is not counted. Where the clocks of the
// machines disagree it may seem to lie ahead: that counts as no time at all.
func (m *Metrics) ObserveProgramming(f lb.Family, trigger, now time.Time) {
	if trigger.IsZero() {
		return
	}
	m.proxy.programming.WithLabelValues(string(f)).Observe(max(0, now.Sub(trigger).Seconds()))
}

// ObserveChanges counts objects that changed.
func (m *Metrics) ObserveChanges(services, slices int) {
	m.proxy.servicesTotal.Add(float64(services))
	m.proxy.endpointsTotal.Add(float64(slices))
}

// SetPending says how many changed objects are not in the kernel yet.
func (m *Metrics) SetPending(services, slices int) {
	m.proxy.servicesPending.Set(float64(services))
	m.proxy.endpointsPending.Set(float64(slices))
}

// SetNoLocalEndpoints says how many Service ports have usable endpoints, but
// none here where their internal or external traffic policy wants it.
func (m *Metrics) SetNoLocalEndpoints(f lb.Family, internal, external int) {
	m.proxy.noLocalEndpoints.WithLabelValues("internal", string(f)).Set(float64(internal))
	m.proxy.noLocalEndpoints.WithLabelValues("external", string(f)).Set(float64(external))
}

// CountHealthz counts an answer on /healthz.
func (m *Metrics) CountHealthz(code int) {
	m.proxy.healthz.WithLabelValues(strconv.Itoa(code)).Inc()
	m.slis.observe(proxyCheck, "healthz", code < http.StatusBadRequest)
}

// CountLivez counts an answer on /livez.
func (m *Metrics) CountLivez(code int) {
	m.proxy.livez.WithLabelValues(strconv.Itoa(code)).Inc()
	m.slis.observe(proxyCheck, "livez", code < http.StatusBadRequest)
}

func unix(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }

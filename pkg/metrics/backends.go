package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/pkg/lb"
)

// Backend is a backend of a Service port, as this node sees it. What several Service
// ports have in common belongs here once for each: what is told of it is told of the
// backend, not of its part in the Service.
type Backend struct {
	Service     lb.ServiceName
	Port        string // name of the Service port, "" where it has none
	Backend     lb.AddrPort
	Connections uint64 // and flows that have begun
	Traffic
	InFlight uint32        // connections and flows that are open
	Failures uint32        // in a row
	Ejected  bool          // all clients prefer others to it
	InZone   *bool         // it is in the zone of this node, nil where that is not known
	Response time.Duration // response time as last measured, 0: nobody asks, or none is known
}

// backends are the metrics with a series for each backend.
type backends struct {
	connections, bytes, packets, failed, inFlight, failures, ejected, inZone, response, omitted *prometheus.Desc
}

func newBackends(desc func(name, help string, labels ...string) *prometheus.Desc) backends {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return desc("headgate_backend_"+name, help, append([]string{"namespace", "service", "port", "backend"}, labels...)...)
	}
	return backends{
		connections: of("connections_total", "Connections from this node to the backend that began, over all Service ports: of sockets as they get it, of packets once a TCP handshake has ended or another flow begins."),
		bytes:       of("bytes_total", "Payload with the backend in bytes, over all Service ports, as in headgate_service_bytes_total.", "direction"),
		packets:     of("packets_total", "Packets of flows with the backend, over all Service ports, as in headgate_service_packets_total.", "direction"),
		failed:      of("failures_total", "TCP connections that the backend has failed, over all Service ports, by reason, as in headgate_service_failures_total.", "reason"),
		inFlight:    of("in_flight", "Open connections and flows from this node to a backend, over all Service ports."),
		failures:    of("consecutive_failures", "Consecutive connections that the backend did not take."),
		ejected:     of("ejected", "1 if all clients avoid the backend, since it took no connections, else 0."),
		inZone:      of("in_zone", "1 if the backend is in the zone of this node, else 0; left out where the zone of either is not known."),
		response:    of("response_seconds", "Response time of the backend in seconds, network and application, where an algorithm measures it."),
		omitted:     desc("headgate_backends_omitted", "Backends left out of the per-backend metrics because of the limit of 1,000."),
	}
}

func (b backends) descs() []*prometheus.Desc {
	return []*prometheus.Desc{b.connections, b.bytes, b.packets, b.failed, b.inFlight, b.failures, b.ejected, b.inZone, b.response, b.omitted}
}

func (b backends) collect(to sink, all []Backend, omitted int) {
	for _, one := range all {
		labels := []string{one.Service.Namespace, one.Service.Name, one.Port, one.Backend.String()}
		to.counter(b.connections, one.Connections, labels...)
		to.traffic(b.bytes, b.packets, b.failed, one.Traffic, labels)
		to.gauge(b.inFlight, float64(one.InFlight), labels...)
		to.gauge(b.failures, float64(one.Failures), labels...)
		to.gauge(b.ejected, truth(one.Ejected), labels...)
		if one.InZone != nil {
			to.gauge(b.inZone, truth(*one.InZone), labels...)
		}
		if one.Response > 0 {
			to.gauge(b.response, one.Response.Seconds(), labels...)
		}
	}
	to.gauge(b.omitted, float64(omitted))
}

// truth is 1 for what is so.
func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

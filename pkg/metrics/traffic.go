package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate/pkg/lb"
)

// ServiceTraffic is what went to a Service port and came back.
type ServiceTraffic struct {
	Service     lb.ServiceName
	Port        string // name of the port, "" where it has none
	Connections uint64
	Traffic
	ConnectTimes ConnectTimes
}

// Traffic is bytes of payload, packets of flows, and connections that failed by reason.
type Traffic struct {
	Bytes    Directions
	Packets  Directions
	Failures map[string]uint64
}

// Directions is how much went to backends and came from them.
type Directions struct{ To, From uint64 }

// ConnectTimes is how many connections took how long.
type ConnectTimes struct {
	Counts []uint64 // in buckets, each up to twice the time of the one before; the last has no bound
	Least  int      // the first is up to 2^Least seconds
}

// serviceTraffic are the metrics with series for each Service port.
type serviceTraffic struct {
	connections, bytes, packets, failures, connectTimes *prometheus.Desc
}

func newServiceTraffic(desc func(name, help string, labels ...string) *prometheus.Desc) serviceTraffic {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return desc("headgate_service_"+name, help, append([]string{"namespace", "service", "port"}, labels...)...)
	}
	return serviceTraffic{
		connections:  of("connections_total", "Connections of a Service port that began on this node: of sockets as they get a backend, of packets once a TCP handshake has ended or another flow begins; Service ports to which no client came are left out."),
		bytes:        of("bytes_total", "Payload with a Service port in bytes: of TCP sockets on this node, as they are closed and twice a minute while they are open, and of packets of flows.", "direction"),
		packets:      of("packets_total", "Packets of flows with a Service port, those of sockets on this node left out: one that the kernel hands over as a whole is one, however many frames it was.", "direction"),
		failures:     of("failures_total", "TCP connections with a Service port that backends have failed, of sockets on this node and of flows of packets, by reason.", "reason"),
		connectTimes: of("connect_seconds", "Time of a connect() to a Service port in seconds, from the SYN to its answer: the shortest round trip of the connection, and a second for each SYN that was sent again. TCP sockets on this node, as they are closed."),
	}
}

func (s serviceTraffic) descs() []*prometheus.Desc {
	return []*prometheus.Desc{s.connections, s.bytes, s.packets, s.failures, s.connectTimes}
}

func (s serviceTraffic) collect(to sink, all []ServiceTraffic) {
	for _, t := range mergedTraffic(all) {
		labels := []string{t.Service.Namespace, t.Service.Name, t.Port}
		to.counter(s.connections, t.Connections, labels...)
		to.traffic(s.bytes, s.packets, s.failures, t.Traffic, labels)
		to.connectTimes(s.connectTimes, t.ConnectTimes, labels)
	}
}

// traffic sends what there is: few backends fail.
func (s sink) traffic(bytes, packets, failures *prometheus.Desc, t Traffic, labels []string) {
	s.directions(bytes, t.Bytes, labels)
	s.directions(packets, t.Packets, labels)
	for reason, n := range t.Failures {
		if n > 0 {
			s.counter(failures, n, append(labels, reason)...)
		}
	}
}

// directions sends how much went each way, if any did.
func (s sink) directions(desc *prometheus.Desc, d Directions, labels []string) {
	if d != (Directions{}) {
		s.counter(desc, d.To, append(labels, "to")...)
		s.counter(desc, d.From, append(labels, "from")...)
	}
}

// mergedTraffic adds up what has equal labels, as merged does.
func mergedTraffic(all []ServiceTraffic) (out []ServiceTraffic) {
	type labels struct {
		lb.ServiceName
		port string
	}
	at := map[labels]int{}
	for _, t := range all {
		key := labels{t.Service, t.Port}
		i, known := at[key]
		if !known {
			at[key] = len(out)
			out = append(out, t)
			continue
		}
		out[i].Connections += t.Connections
		out[i].Traffic = out[i].plus(t.Traffic)
		out[i].ConnectTimes = out[i].ConnectTimes.plus(t.ConnectTimes)
	}
	return out
}

func (t Traffic) plus(other Traffic) Traffic {
	sum := Traffic{Bytes: t.Bytes.plus(other.Bytes), Packets: t.Packets.plus(other.Packets), Failures: map[string]uint64{}}
	for _, failures := range []map[string]uint64{t.Failures, other.Failures} {
		for reason, n := range failures {
			sum.Failures[reason] += n
		}
	}
	return sum
}

func (d Directions) plus(other Directions) Directions {
	return Directions{d.To + other.To, d.From + other.From}
}

func (c ConnectTimes) plus(other ConnectTimes) ConnectTimes {
	sum := ConnectTimes{Counts: make([]uint64, max(len(c.Counts), len(other.Counts))), Least: c.Least}
	for i := range sum.Counts {
		for _, counts := range [][]uint64{c.Counts, other.Counts} {
			if i < len(counts) {
				sum.Counts[i] += counts[i]
			}
		}
	}
	return sum
}

// classicEvery is which buckets stand in the text format, too: each has a series.
const classicEvery = 3

// connectTimes sends a native histogram of factor 2, with a few classic buckets for who knows no
// native ones; nothing where there are none.
func (s sink) connectTimes(d *prometheus.Desc, c ConnectTimes, labels []string) {
	h := &dto.Histogram{Schema: new(int32), ZeroThreshold: new(float64), ZeroCount: new(uint64)}
	var count uint64
	var sum float64
	before := int64(0)
	span := &dto.BucketSpan{Offset: new(int32(c.Least)), Length: new(uint32(len(c.Counts)))}
	for i, n := range c.Counts {
		bound := math.Ldexp(1, c.Least+i)
		count += n
		sum += float64(n) * bound * 3 / 4 // the middle of a bucket
		h.PositiveDelta = append(h.PositiveDelta, int64(n)-before)
		before = int64(n)
		if i%classicEvery == classicEvery-1 && i < len(c.Counts)-1 {
			h.Bucket = append(h.Bucket, &dto.Bucket{CumulativeCount: new(count), UpperBound: new(bound)})
		}
	}
	if count == 0 {
		return
	}
	h.SampleCount, h.SampleSum, h.PositiveSpan = &count, &sum, []*dto.BucketSpan{span}
	// The descriptor knows the names of labels, this one their values.
	like, err := prometheus.NewConstMetric(d, prometheus.UntypedValue, 0, labels...)
	if err != nil {
		s.to <- prometheus.NewInvalidMetric(d, err)
		return
	}
	s.to <- histogram{like, h}
}

// histogram is a constant metric that is both native and classic.
type histogram struct {
	prometheus.Metric
	histogram *dto.Histogram
}

// Write is of prometheus.Metric.
func (h histogram) Write(to *dto.Metric) error {
	err := h.Metric.Write(to)
	to.Untyped, to.Histogram = nil, h.histogram
	return err
}

package metrics

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/pkg/lb"
)

// Snapshot is what is read of the datapath when somebody asks. All counters
// count since the maps were made, across agents.
type Snapshot struct {
	Frontends int // addresses that clients use
	Backends  int
	Ejected   int // backends that are avoided
	Tables    int
	Services  int // Service ports
	Maps      []Map
	Writes    uint64            // by agents to the maps
	Events    map[string]uint64 // by name of the counter, such as "connect"
	Drops     map[string]uint64 // by drop reason; all of them, a Service known or not
	// ServiceDrops are those of Drops of which the Service is known. Only
	// Services of which something was dropped belong here: each is a series.
	ServiceDrops []ServiceCount
	// ServiceTraffic is that of Service ports that had any connections, and not more than
	// Prometheus should have. Of so many nothing is told.
	ServiceTraffic  []ServiceTraffic
	ServicesOmitted int
	Attached        []Program
	// BackendLoads are backends to tell of one by one: no two with equal labels, and
	// not more than Prometheus should have. Of so many nothing is told.
	BackendLoads    []Backend
	BackendsOmitted int
	Peers           []Peer
}

// Program is a program with whether it is in force.
type Program struct {
	Hook     string
	Device   string // that it belongs on, "" for the cgroup
	Attached bool
}

// Map is a BPF map with how full it is.
type Map struct {
	Name       string
	Entries    *uint32 // in use, nil where they are not counted
	MaxEntries uint32
	Bytes      uint64 // of kernel memory
}

// ServiceCount is how often something happened to one Service port.
type ServiceCount struct {
	Service lb.ServiceName
	Port    string // name of the port, "" where it has none
	Reason  string // of a drop, else ""
	Count   uint64
}

// WatchDatapath has read called at every scrape, one at a time. A read that
// fails is counted, and nothing of the datapath is shown then. It is to be
// called once.
func (m *Metrics) WatchDatapath(read func() (Snapshot, error)) {
	m.registry.MustRegister(newDatapath(read))
}

// datapath collects a Snapshot.
type datapath struct {
	mu         sync.Mutex
	read       func() (Snapshot, error)
	readErrors prometheus.Counter

	frontends, backends, tables, services *prometheus.Desc
	ejected                               *prometheus.Desc
	mapEntries, mapMaxEntries, mapBytes   *prometheus.Desc
	writes, events, drops, serviceDrops   *prometheus.Desc
	servicesOmitted, attached             *prometheus.Desc
	traffic                               serviceTraffic
	each                                  backends
	peers                                 peers
}

func newDatapath(read func() (Snapshot, error)) *datapath {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &datapath{
		read: read,
		readErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_datapath_read_errors_total", Help: "Scrapes that failed to read the datapath.",
		}),
		frontends:       desc("headgate_frontends", "Frontends: addresses, ports and protocols that clients use."),
		backends:        desc("headgate_backends", "Backends: addresses, ports and protocols that traffic goes to."),
		ejected:         desc("headgate_backends_ejected", "Backends that all clients avoid, since they took no connections."),
		tables:          desc("headgate_tables", "Tables of backends; Service ports with equal backends share one."),
		services:        desc("headgate_service_ports", "Service ports in the kernel."),
		mapEntries:      desc("headgate_map_entries", "Entries of a BPF map in use; maps that must be read to be counted are counted after a scrape, at most every 30 s.", "map"),
		mapMaxEntries:   desc("headgate_map_max_entries", "Capacity of a BPF map in entries; the agent enlarges a full map.", "map"),
		mapBytes:        desc("headgate_map_bytes", "Kernel memory of a BPF map in bytes.", "map"),
		writes:          desc("headgate_writes_total", "Writes of agents to the BPF maps."),
		events:          desc("headgate_datapath_events_total", "Events in the datapath, by name.", "event"),
		drops:           desc("headgate_drops_total", "Connections and packets that the datapath refused, by reason.", "reason"),
		serviceDrops:    desc("headgate_service_drops_total", "Connections and packets that the datapath refused, by reason and Service port; Service ports without any are left out.", "namespace", "service", "port", "reason"),
		servicesOmitted: desc("headgate_service_ports_omitted", "Service ports left out of the metrics of Service ports because of --metrics-services: those with the fewest connections and refusals; one takes the place of another once it has an eighth and ten connections more."),
		attached:        desc("headgate_program_attached", "1 if the program of a hook is attached, else 0; device is empty for cgroup hooks, or without any device.", "hook", "device"),
		traffic:         newServiceTraffic(desc),
		each:            newBackends(desc),
		peers:           newPeers(desc),
	}
}

// Describe is of prometheus.Collector.
func (d *datapath) Describe(c chan<- *prometheus.Desc) {
	for _, desc := range append(slices.Concat(d.each.descs(), d.peers.descs(), d.traffic.descs()),
		d.readErrors.Desc(), d.frontends, d.backends, d.ejected, d.tables, d.services, d.mapEntries, d.mapMaxEntries,
		d.mapBytes, d.writes, d.events, d.drops, d.serviceDrops, d.servicesOmitted, d.attached,
	) {
		c <- desc
	}
}

// Collect is of prometheus.Collector.
func (d *datapath) Collect(c chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.read()
	if err != nil {
		d.readErrors.Inc()
	} else {
		d.collect(sink{c}, s)
	}
	c <- d.readErrors
}

func (d *datapath) collect(to sink, s Snapshot) {
	to.gauge(d.frontends, float64(s.Frontends))
	to.gauge(d.backends, float64(s.Backends))
	to.gauge(d.ejected, float64(s.Ejected))
	to.gauge(d.tables, float64(s.Tables))
	to.gauge(d.services, float64(s.Services))
	to.counter(d.writes, s.Writes)
	d.peers.collect(to, s.Peers)
	for _, m := range s.Maps {
		if m.Entries != nil {
			to.gauge(d.mapEntries, float64(*m.Entries), m.Name)
		}
		to.gauge(d.mapMaxEntries, float64(m.MaxEntries), m.Name)
		to.gauge(d.mapBytes, float64(m.Bytes), m.Name)
	}
	for event, n := range s.Events {
		to.counter(d.events, n, event)
	}
	for reason, n := range s.Drops {
		to.counter(d.drops, n, reason)
	}
	d.traffic.collect(to, s.ServiceTraffic)
	to.gauge(d.servicesOmitted, float64(s.ServicesOmitted))
	for _, drop := range merged(s.ServiceDrops) {
		to.counter(d.serviceDrops, drop.Count, drop.Service.Namespace, drop.Service.Name, drop.Port, drop.Reason)
	}
	for _, p := range s.Attached {
		to.gauge(d.attached, truth(p.Attached), p.Hook, p.Device)
	}
	d.each.collect(to, s.BackendLoads, s.BackendsOmitted)
}

// merged adds up what has equal labels: a Service may have a port by the same
// name twice while one replaces the other, and a series given twice would fail
// the whole scrape.
func merged(counts []ServiceCount) []ServiceCount {
	at := map[ServiceCount]int{}
	var out []ServiceCount
	for _, c := range counts {
		key := ServiceCount{Service: c.Service, Port: c.Port, Reason: c.Reason}
		i, known := at[key]
		if !known {
			i, at[key] = len(out), len(out)
			out = append(out, key)
		}
		out[i].Count += c.Count
	}
	return out
}

// sink takes metrics with a constant value.
type sink struct{ to chan<- prometheus.Metric }

func (s sink) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.send(d, prometheus.GaugeValue, value, labels)
}

func (s sink) counter(d *prometheus.Desc, n uint64, labels ...string) {
	s.send(d, prometheus.CounterValue, float64(n), labels)
}

// send sends an error in place of a metric whose labels make no sense: names
// come from pinned maps, which may hold anything.
func (s sink) send(d *prometheus.Desc, t prometheus.ValueType, value float64, labels []string) {
	m, err := prometheus.NewConstMetric(d, t, value, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	s.to <- m
}

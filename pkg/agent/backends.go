package agent

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"sync"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/plan"
)

// maxBackendMetrics is how many backends of Service ports are told of one by one,
// unless all are asked for. Each is up to 14 series, on every node.
const maxBackendMetrics = 1000

// kernel is what is asked of a datapath.Reader here.
type kernel interface {
	Frontends(do func(lb.AddrPort, plan.Frontend) error) error
	Slots(plan.Table) ([]uint32, error)
	Backend(id uint32) datapath.Backend
	Service(id uint32) (plan.Service, error)
	Services() (iter.Seq[uint32], error)
	Traffic(service uint32) (datapath.ServiceTraffic, error)
	Drops(service uint32) (map[string]uint64, error)
}

// backendMetrics returns the backends to tell of one by one: all of them, or those
// that have failed of late, and those of Services whose algorithm goes by what is
// measured of backends. Where none is failing, tables of others are not read. If these are too many, those that have failed go first; of how
// many nothing is told is the second result.
func backendMetrics(k kernel, all, failing bool) ([]metrics.Backend, int, error) {
	var out []metrics.Backend
	type pair struct{ service, backend uint32 }
	listed := map[pair]bool{} // a Service port has several frontends
	err := k.Frontends(func(_ lb.AddrPort, f plan.Frontend) error {
		compares := all || f.Algorithm().Compares()
		if !compares && !failing {
			return nil
		}
		members, err := k.Slots(f.Members)
		if err != nil {
			return err
		}
		for _, id := range members {
			b := k.Backend(id)
			if b.At.Port == 0 || !compares && b.Failures == 0 && b.Ejected == 0 || listed[pair{f.Service, id}] {
				continue // it has gone meanwhile, or there is nothing to tell
			}
			listed[pair{f.Service, id}] = true
			service, err := k.Service(f.Service)
			if err != nil {
				return err
			}
			out = append(out, metrics.Backend{
				Service: service.ServiceName, Port: service.Port, Backend: b.At,
				Connections: b.Connections, Traffic: trafficMetrics(b.Traffic), InFlight: b.InFlight, Failures: b.Failures, Ejected: b.Ejected > 0, Response: b.Response,
			})
		}
		return nil
	})
	sort.Slice(out, func(i, j int) bool { // slices.SortFunc is compiled for each type, which takes 25 kB of this one
		a, b := &out[i], &out[j]
		return cmp.Or(
			-cmp.Compare(min(a.Failures, 1), min(b.Failures, 1)),
			a.Service.Compare(b.Service), cmp.Compare(a.Port, b.Port), a.Backend.Compare(b.Backend)) < 0
	})
	if all {
		return out, 0, err
	}
	shown, omitted := first(out, maxBackendMetrics)
	return shown, omitted, err
}

// first returns so many at the most, and how many it leaves out.
func first[T any](all []T, most int) ([]T, int) {
	n := min(len(all), most)
	return all[:n], len(all) - n
}

// trafficMetrics returns traffic as metrics have it.
func trafficMetrics(t datapath.Traffic) metrics.Traffic {
	return metrics.Traffic{
		Bytes:    metrics.Directions{To: t.BytesTo, From: t.BytesFrom},
		Packets:  metrics.Directions{To: t.PacketsTo, From: t.PacketsFrom},
		Failures: t.Failed.ByReason(),
	}
}

// portTraffic is the traffic of a Service port.
type portTraffic struct {
	service uint32 // ID
	datapath.ServiceTraffic
	drops   map[string]uint64
	clients uint64 // that came: connections, and what was refused
}

// toldPorts is the Service ports that were told of last, by ID. Scrapes may come at the same time.
type toldPorts struct {
	mu  sync.Mutex
	ids map[uint32]bool
}

// metrics adds the traffic and the refusals of so many Service ports, those with the most, and of how many nothing is told.
func (t *toldPorts) metrics(k kernel, most int, to *metrics.Snapshot) error {
	counted, err := readTraffic(k)
	if err != nil {
		return err
	}
	shown, omitted := t.choose(counted, most)
	to.ServicesOmitted = omitted
	for _, c := range shown {
		service, err := k.Service(c.service)
		if err != nil {
			return err
		}
		if service == (plan.Service{}) {
			continue // it has gone meanwhile
		}
		if c.Connections > 0 || c.Failed.Sum() > 0 {
			to.ServiceTraffic = append(to.ServiceTraffic, metrics.ServiceTraffic{
				Service: service.ServiceName, Port: service.Port, Connections: c.Connections, Traffic: trafficMetrics(c.Traffic),
				ConnectTimes: metrics.ConnectTimes{Counts: c.ConnectTimes[:], Least: datapath.ConnectTimeLeast},
			})
		}
		for reason, n := range c.drops {
			to.ServiceDrops = append(to.ServiceDrops, metrics.ServiceCount{Service: service.ServiceName, Port: service.Port, Reason: reason, Count: n})
		}
	}
	return nil
}

// readTraffic returns that of the Service ports to which clients came.
func readTraffic(k kernel) (out []*portTraffic, err error) {
	ids, err := k.Services()
	if err != nil {
		return nil, err
	}
	for id := range ids {
		t, err := k.Traffic(id)
		if err != nil {
			return nil, err
		}
		drops, err := k.Drops(id)
		if err != nil {
			return nil, err
		}
		clients := t.Connections + t.Failed.Sum() // a TCP flow that no backend takes does not begin
		for _, n := range drops {
			clients += n
		}
		if clients > 0 {
			out = append(out, &portTraffic{id, t, drops, clients})
		}
	}
	return out, nil
}

// choose returns so many ports with the most clients, and how many it leaves out. Those that were told of last count
// for more, or series of ports that are about equal would come and go.
func (t *toldPorts) choose(counted []*portTraffic, most int) ([]*portTraffic, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(counted) > most {
		slices.SortFunc(counted, func(a, b *portTraffic) int {
			return cmp.Or(cmp.Compare(t.weight(b), t.weight(a)), cmp.Compare(a.service, b.service))
		})
	}
	shown, omitted := first(counted, most)
	t.ids = make(map[uint32]bool, len(shown))
	for _, c := range shown {
		t.ids[c.service] = true
	}
	return shown, omitted
}

// weight is how many clients a port counts for: an eighth and ten more where it was told of last.
func (t *toldPorts) weight(c *portTraffic) uint64 {
	if t.ids[c.service] {
		return c.clients + c.clients/8 + 10
	}
	return c.clients
}

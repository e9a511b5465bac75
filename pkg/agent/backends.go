package agent

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/plan"
)

// maxBackendMetrics is how many backends of Service ports are told of one by one,
// unless all are asked for. Each is up to four series, on every node.
const maxBackendMetrics = 1000

// backendMetrics returns the backends to tell of one by one: all of them, or those
// that have failed of late, and those of Services whose algorithm goes by what is
// measured of backends. If these are too many, those that have failed go first; of how
// many nothing is told is the second result.
func backendMetrics(c plan.Content, loads map[uint32]datapath.Load, all bool) ([]metrics.Backend, int) {
	var out []metrics.Backend
	type pair struct{ service, backend uint32 }
	told := map[pair]bool{} // a Service port has several frontends
	for _, f := range c.Frontends {
		service := c.Services[f.Service]
		compares := all || f.Algorithm() >= lb.LC
		for _, id := range c.Tables[f.Known] {
			at, load := c.Backends[id], loads[id]
			if at.Port == 0 || !compares && load.Failures == 0 && load.Suspect == 0 || told[pair{f.Service, id}] {
				continue // it has gone meanwhile, or there is nothing to tell
			}
			told[pair{f.Service, id}] = true
			out = append(out, metrics.Backend{
				Service: service.ServiceName, Port: service.Port, Backend: at,
				InFlight: load.InFlight, Failures: load.Failures, Suspect: load.Suspect > 0, Answer: load.Answer,
			})
		}
	}
	slices.SortFunc(out, func(a, b metrics.Backend) int {
		return cmp.Or(
			-cmp.Compare(min(a.Failures, 1), min(b.Failures, 1)),
			a.Service.Compare(b.Service), cmp.Compare(a.Port, b.Port), a.Backend.Compare(b.Backend))
	})
	if all {
		return out, 0
	}
	shown := min(len(out), maxBackendMetrics)
	return out[:shown], len(out) - shown
}

func countSuspects(loads map[uint32]datapath.Load) (n int) {
	for _, l := range loads {
		if l.Suspect > 0 {
			n++
		}
	}
	return n
}

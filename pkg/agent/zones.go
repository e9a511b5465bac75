package agent

import (
	"context"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
)

// zonesTimeout is how long a scrape waits for the loop, which may be busy, to say where backends are.
const zonesTimeout = 200 * time.Millisecond

// tellZones says of backends whether they are in the zone of this node. Where the loop is busy the next
// scrape says it.
func (a *statusServer) tellZones(all []metrics.Backend) {
	a.mu.Lock()
	zone := a.zone
	a.mu.Unlock()
	if zone == "" || len(all) == 0 {
		return
	}
	asked := &lb.Selection{Services: map[lb.ServiceName]bool{}}
	for _, b := range all {
		asked.Services[b.Service] = true
	}
	ctx, cancel := context.WithTimeout(context.Background(), zonesTimeout)
	defer cancel()
	if said, err := a.inbox.Describe(ctx, asked); err == nil {
		markInZone(all, said, zone)
	}
}

// markInZone says of backends whether they are in a zone, by what is said of them: nothing where that does
// not know their own.
func markInZone(all []metrics.Backend, said lb.Descriptions, zone string) {
	for i := range all {
		if d := said.Of(all[i].Backend, all[i].Service); d != nil && d.Zone != "" {
			all[i].InZone = new(d.Zone == zone)
		}
	}
}

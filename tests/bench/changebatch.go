package main

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// batchSize is how many Services one update replaces by as many others at most, batches how often that is
// measured, and batchPause how long what is gone has to be cleared before the next time.
const (
	batchSize  = 500
	batches    = 7
	batchPause = 1500 * time.Millisecond
)

// changeBatches measures updates that replace many Services.
func (b *bench) changeBatches(n *node, t *table) error {
	size := min(batchSize, b.plan.big)
	var took []time.Duration
	ops := 0
	for i := range batches {
		u := replacement(b.plan.big, i*size, size)
		time.Sleep(batchPause)
		n.dp.forget()
		from := time.Now()
		n.inbox.Update(u)
		for frontends := 0; frontends < size; {
			a, err := b.wait(n.dp)
			if err != nil {
				return err
			}
			ops, frontends = ops+a.ops, frontends+a.frontends
			if frontends >= size {
				took = append(took, a.at.Sub(from))
			}
		}
	}
	if err := isInKernel(n.group.root, nth(backendNet4, (b.plan.big+batches*size)*endpointsEach)); err != nil {
		return err
	}
	b.reportChange(t, fmt.Sprintf("%d Services replaced by %d, from objects to the maps", size, size), "batch", took, ops, "–")
	return nil
}

// replacement returns the update that takes some Services away, from one on, and brings as many new ones: of all
// the Services that there are it leaves so many.
func replacement(services, from, size int) lb.Update {
	u := lb.Update{Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	for i := from; i < from+size; i++ {
		goes, its := plainService(i, endpointsEach)
		u.Services[goes.ServiceName], u.Slices[its.SliceName] = nil, nil
		svc, slice := plainService(services+i, endpointsEach)
		u.Services[svc.ServiceName], u.Slices[slice.SliceName] = svc, slice
	}
	return u
}

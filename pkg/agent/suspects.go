package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// suspectsEvery is how often it is looked who is a suspect. Nothing waits for it:
// the datapath avoids suspects by itself.
const suspectsEvery = time.Second

// watchSuspects tells of backends that the datapath avoids, until the context ends.
func (a *answers) watchSuspects(ctx context.Context) {
	tick := time.NewTicker(suspectsEvery)
	defer tick.Stop()
	var before []uint32
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ids, problems, err := suspects(a.cfg.BPFRoot, before)
		if err != nil {
			a.log.Debug("look for suspects", zap.Error(err))
			continue
		}
		if slices.Equal(ids, before) {
			continue
		}
		before = ids
		a.problems.setSuspects(problems)
	}
}

// suspects returns the IDs of backends that are suspects and, where those are
// others than before, what to tell the owners of their Services.
func suspects(root string, before []uint32) ([]uint32, []lb.Problem, error) {
	i, err := datapath.Inspect(root)
	if err != nil {
		return nil, nil, err
	}
	defer i.Close()
	now := i.Suspects()
	ids := slices.Sorted(maps.Keys(now))
	if len(ids) == 0 || slices.Equal(ids, before) {
		return ids, nil, nil
	}
	c, err := i.Content()
	if err != nil {
		return nil, nil, err
	}
	seen := map[lb.Problem]bool{}
	for _, f := range c.Frontends {
		if !f.PassiveHealth {
			continue
		}
		for _, id := range c.Tables[f.Known] {
			if _, suspect := now[id]; suspect {
				seen[lb.Problem{
					Object: "Service " + c.Services[f.Service].ServiceName.String(),
					Field:  "backend", Value: c.Backends[id].String(),
					Reason: "does not take connections: this node prefers others until it does",
					Remedy: "look at the pod and its node, or turn this off with the annotation headgate.dev/passive-health",
				}] = true
			}
		}
	}
	return ids, slices.SortedFunc(maps.Keys(seen), func(a, b lb.Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Value, b.Value))
	}), nil
}

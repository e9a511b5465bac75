package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/tick"
)

// ejectedEvery is how often it is looked who is ejected. Nothing waits for it:
// the datapath avoid ejected backends by itself.
const ejectedEvery = time.Second

// clearEjected ends what an earlier configuration has ejected and nobody would clear in
// this one: where no backend is ever ejected, or where nobody asks again those that a
// probe found out. It waits until the programs of this configuration are in force.
func (a *statusServer) clearEjected(ctx context.Context, ready <-chan struct{}, to judge) error {
	select {
	case <-ctx.Done():
		return nil
	case <-ready:
	}
	return datapath.Look(a.open, func(kernel *datapath.Reader) error {
		for _, b := range kernel.Backends() {
			if isStray(a.cfg, b.Load) {
				to.Judge(ctx, b.At, false, 0)
			}
		}
		return nil
	})
}

// isStray says whether nobody would clear a backend.
func isStray(cfg Config, l datapath.Load) bool {
	if cfg.Datapath.EjectAfter == 0 {
		return l.Ejected > 0 || l.EjectedByOne > 0 || l.Failures > 0
	}
	return l.Probed && !cfg.Convert.Probes
}

// watchEjected tells of backends that the datapath avoids, of what it refuses, and of file descriptors,
// until the context ends. Meanwhile it marks that there is an agent.
func (a *statusServer) watchEjected(ctx context.Context) {
	look := time.NewTimer(tick.Next(ejectedEvery))
	defer look.Stop()
	var search datapath.Ejected
	var before []uint32
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			look.Reset(tick.Next(ejectedEvery))
		}
		if a.whole.Load() { // one that has not heard of everything follows nothing
			a.markAlive(time.Now())
		}
		if d, err := readDescriptors(); err != nil {
			a.log.Debug("count file descriptors", zap.Error(err))
		} else {
			a.problems.setFiles(d.problems(a.cfg.NodeName))
		}
		err := datapath.Look(a.open, func(r *datapath.Reader) error {
			if err := a.live.lookForRefused(r, time.Now()); err != nil {
				return err
			}
			a.problems.setFaults(a.live.problems(a.cfg.NodeName))
			if err := a.live.lookForFailing(r, time.Now()); err != nil {
				return err
			}
			now, err := search.Find(r)
			if err != nil || slices.Equal(now, before) {
				return err
			}
			problems, err := ejectedProblems(r, now)
			if err == nil {
				before = now
				a.problems.setEjected(problems)
			}
			return err
		})
		if err != nil {
			a.log.Debug("read which backends are ejected", zap.Error(err))
		}
	}
}

// markAlive marks that an agent followed changes at a time.
func (a *statusServer) markAlive(at time.Time) {
	if err := datapath.MarkAlive(a.cfg.Datapath.Root, at); err != nil {
		a.log.Debug("mark that an agent runs", zap.Error(err))
	}
}

// ejectedProblems is what to tell the owners of the Services of ejected backends.
func ejectedProblems(k kernel, ejected []uint32) ([]lb.Problem, error) {
	seen := map[lb.Problem]bool{}
	if len(ejected) == 0 {
		return nil, nil
	}
	err := k.Frontends(func(_ lb.AddrPort, f plan.Frontend) error {
		if f.PassiveHealth != lb.SwitchOn {
			return nil
		}
		members, err := k.Slots(f.Members)
		if err != nil {
			return err
		}
		for _, id := range members {
			if _, found := slices.BinarySearch(ejected, id); !found {
				continue
			}
			service, err := k.Service(f.Service)
			if err != nil {
				return err
			}
			b := k.Backend(id)
			reason, remedy := howFailed(b.Load)
			seen[lb.Problem{
				Scope: lb.ScopeBackend, Object: "Service " + service.ServiceName.String(),
				Field: "backend", Value: b.At.String(), Reason: reason, Remedy: remedy,
			}] = true
		}
		return nil
	})
	all := make([]lb.Problem, 0, len(seen))
	for p := range seen {
		all = append(all, p)
	}
	lb.SortProblems(all, func(a, b *lb.Problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Value, b.Value))
	})
	return all, err
}

// howFailed says how an ejected backend has failed since it is one, and what to look at. A reset of a connection that stood
// ejects no backend.
func howFailed(l datapath.Load) (reason, remedy string) {
	const process, network = "look at the process in the pod, and whether it listens at this address and port (targetPort)", "look at its node, and at routes, firewalls and NetworkPolicies on the way"
	const until = ": this node prefers others until it takes one"
	silent := l.Failed.TimedOut+l.Failed.Unreachable > 0
	switch {
	case l.Probed:
		return "fails its probe: this node prefers others until a probe succeeds", "look at what headgate.dev/probe asks of the pod; the log of the agent says what came back"
	case l.Failed.Refused > 0 && silent:
		return "has refused connections, and left others without an answer" + until, process + "; " + network
	case l.Failed.Refused > 0:
		return "refuses connections" + until, process
	case silent:
		return "does not answer connections" + until, network
	default:
		return "does not take connections" + until, process + "; " + network
	}
}

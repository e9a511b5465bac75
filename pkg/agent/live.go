package agent

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/httpserve"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
)

// Live is what a running agent says of itself when it is asked, beside its report.
type Live struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Starting is set until what the source and the node said first is in force, or was refused.
	Starting bool `json:"starting,omitempty"`
	// Follows is where Services come from: a folder, or "the API server".
	Follows string   `json:"follows"`
	Change  *Change  `json:"change,omitempty"`  // the last one, nil where there was none
	Refused *Refused `json:"refused,omitempty"` // the last one since the agent began, likewise
	// Faults are Service ports that refused a client within the last minute for a fault of the node, the last first.
	Faults []Refused `json:"faults,omitempty"`
	// Failing are Service ports whose backends failed more than half of their connections within the last minute.
	Failing []Failing `json:"failing,omitempty"`
}

// Faults are reasons to refuse that neither a Service nor its client can do anything about, in the words of counters, and remedies.
var Faults = map[string]string{
	"table_full":     "raise --flows; headgate map show flow_table says how full it is",
	"snat_exhausted": "all source ports towards a backend are taken: widen --snat-ports, run more pods behind the Service, or write spec.externalTrafficPolicy: Local",
	"no_backend":     "a table names a backend that is not there, which is a fault of Headgate: report it with the file that headgate sysdump writes",
}

// faultFor is how long a fault is told of.
const faultFor = time.Minute

// Change is a change of Services or their endpoints that is in the kernel.
type Change struct {
	At   time.Time     `json:"at"`
	Took time.Duration `json:"tookNs"` // to plan and write it
}

// Refused is a connection or packet that was refused.
type Refused struct {
	At      time.Time `json:"at"` // up to a second later
	Service string    `json:"service"`
	Reason  string    `json:"reason"`
}

// live keeps what Live says.
type live struct {
	mu      sync.Mutex
	now     Live
	refused uint64               // on the node, when that was looked at last
	drops   map[uint32]dropsSeen // of Service ports, likewise
	failing failing
}

// dropsSeen is what was refused of a Service port.
type dropsSeen struct {
	service plan.Service
	reasons map[string]uint64
}

func newLive(cfg Config, now time.Time) *live {
	follows := cfg.Manifests
	if follows == "" {
		follows = "the API server"
	}
	return &live{now: Live{PID: os.Getpid(), Started: now, Starting: true, Follows: follows}}
}

// get returns what there is to say now.
func (l *live) get() Live {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now
	now.Faults = slices.DeleteFunc(slices.Clone(now.Faults), func(f Refused) bool { return time.Since(f.At) >= faultFor })
	return now
}

// problems returns what is wrong with the node for these faults.
func (l *live) problems(node string) (out []lb.Problem) {
	for _, f := range l.get().Faults {
		out = append(out, lb.Problem{
			Scope: lb.ScopeNode, Object: "Node " + node, Field: f.Reason,
			Reason: "this node refused clients of " + f.Service + " within the last minute", Remedy: Faults[f.Reason],
		})
	}
	lb.SortProblems(out, func(a, b *lb.Problem) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Field, b.Field))
	})
	return out
}

// begins notes that all of these are done, unless the context ends before.
func (l *live) begins(ctx context.Context, all ...<-chan struct{}) {
	for _, done := range all {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.Starting = false
}

// changed notes what was brought into the kernel.
func (l *live) changed(t reconciler.Attempt) {
	if t.Err != nil || t.Batch.Services+t.Batch.Slices == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now.Change = &Change{At: t.Ended, Took: t.Ended.Sub(t.Began)}
}

// lookForRefused notes the last refusal. Service ports are read only where the node has
// refused something since the last look.
func (l *live) lookForRefused(r *datapath.Reader, now time.Time) error {
	refused, err := r.Refused()
	if err != nil {
		return err
	}
	if l.drops != nil && refused == l.refused {
		return nil
	}
	seen, last, found := map[uint32]dropsSeen{}, (*Refused)(nil), []Refused(nil)
	services, err := r.Services()
	if err != nil {
		return err
	}
	for id := range services {
		reasons, err := r.Drops(id)
		if err != nil {
			return err
		}
		if len(reasons) == 0 {
			continue
		}
		service, err := r.Service(id)
		if err != nil {
			return err
		}
		seen[id] = dropsSeen{service, reasons}
		if l.drops == nil {
			continue
		}
		for i, reason := range more(l.drops[id], seen[id]) {
			one := Refused{At: now, Service: service.String(), Reason: reason}
			if i == 0 {
				last = &one
			}
			if Faults[reason] != "" {
				found = append(found, one)
			}
		}
	}
	l.refused, l.drops = refused, seen
	if last != nil {
		l.mu.Lock()
		l.now.Refused = last
		l.now.Faults = withFaults(l.now.Faults, found, now)
		l.mu.Unlock()
	}
	return nil
}

// withFaults returns faults with those that were found now, and without those of long ago.
func withFaults(known, found []Refused, now time.Time) []Refused {
	return slices.Concat(found, slices.DeleteFunc(slices.Clone(known), func(f Refused) bool {
		again := slices.ContainsFunc(found, func(one Refused) bool { return one.Service == f.Service && one.Reason == f.Reason })
		return again || now.Sub(f.At) >= faultFor
	}))
}

// more returns the reasons for which more was refused than before.
func more(before, now dropsSeen) (reasons []string) {
	if before.service != now.service {
		before.reasons = nil // the ID is another's now
	}
	for _, r := range slices.Sorted(maps.Keys(now.reasons)) {
		if now.reasons[r] > before.reasons[r] {
			reasons = append(reasons, r)
		}
	}
	return reasons
}

// serveSocket answers there until the context ends.
func (a *statusServer) serveSocket(ctx context.Context) error {
	return httpserve.Run(ctx, httpserve.Config{
		Address: a.cfg.stateFile(socketFile), Handler: a.socketHandler(), Listen: listenAlone,
		Report: func(err error) {
			a.log.Warn("answer headgate ready, will try again", zap.Error(err))
		},
	})
}

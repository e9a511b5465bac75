package agent

import (
	"context"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/healthcheck"
	"github.com/headgate/headgate/pkg/httpserve"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/reconciler"
)

// families are those that a dual-stack kube-proxy answers for. Both are
// programmed by one loop here.
var families = []lb.Family{lb.IPv4, lb.IPv6}

// answers is what others are told of the agent: metrics, health, and the
// health-check NodePorts. It observes the reconciler.
type answers struct {
	cfg      Config
	log      *zap.Logger
	metrics  *metrics.Metrics
	proxy    *healthcheck.ProxyServer
	services *healthcheck.ServiceServer
	problems *problems
	whole    bool // everything was compared with the kernel once: later, changes are

	mu     sync.Mutex
	queued int // updates that were handed over and not yet brought in
}

var _ reconciler.Observer = (*answers)(nil)

func newAnswers(cfg Config, log *zap.Logger, tell reporter, measured *metrics.Metrics) *answers {
	a := &answers{cfg: cfg, log: log, metrics: measured}
	a.proxy = healthcheck.NewProxyServer(healthcheck.ProxyConfig{Healthz: a.metrics.CountHealthz, Livez: a.metrics.CountLivez})
	a.problems = &problems{log: log, dir: cfg.StateDir, count: a.metrics.SetProblems, tell: tell,
		unserved: map[lb.ServiceName]lb.Problem{}, report: Report{BPFRoot: cfg.BPFRoot}}
	a.services = healthcheck.NewServiceServer(healthcheck.ServiceConfig{
		Healthy: a.proxy.Healthy,
		Report: func(name lb.ServiceName, port uint16, err error) {
			if err != nil {
				log.Warn("serve health-check NodePort, will try again", zap.Stringer("service", name), zap.Error(err))
			}
			a.problems.setUnserved(name, port, err)
		},
	})
	a.metrics.WatchDatapath(func() (metrics.Snapshot, error) { return snapshot(cfg.BPFRoot, cfg.MetricsPerBackend) })
	if cfg.Manifests != "" {
		a.proxy.SetNode(&healthcheck.Node{}) // a folder need not have a Node
	}
	return a
}

// setNode says what the Node object says.
func (a *answers) setNode(n lb.Node) { a.proxy.SetNode(&healthcheck.Node{Deleting: n.Leaving}) }

// Queued implements reconciler.Observer.
func (a *answers) Queued(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queued++
	for _, f := range families {
		a.proxy.QueuedUpdate(f)
		a.metrics.ObserveQueued(f, now)
	}
}

// Flushed implements reconciler.Observer.
func (a *answers) Flushed(t reconciler.Attempt) {
	for _, f := range families {
		a.metrics.ObserveSync(metrics.Sync{Family: f, Full: !a.whole, Failed: t.Err != nil, End: t.Ended, Took: t.Ended.Sub(t.Began)})
	}
	if t.Err != nil {
		a.metrics.CountReconcileError()
		a.metrics.SetPending(t.Batch.Services, t.Batch.Slices)
		return
	}
	a.whole = true
	a.metrics.ObserveChanges(t.Batch.Services, t.Batch.Slices)
	a.metrics.SetPending(0, 0)
	for _, f := range families {
		a.metrics.SetNoLocalEndpoints(f, t.NoLocal[f].Internal, t.NoLocal[f].External)
	}
	for _, trigger := range t.Batch.Triggers {
		a.metrics.ObserveProgramming(trigger.Family, trigger.At, t.Ended)
	}
	a.updated(t.Batch.Updates)
	services := map[lb.ServiceName]healthcheck.Service{}
	for name, c := range t.HealthChecks {
		services[name] = healthcheck.Service{Port: c.Port, LocalEndpoints: c.LocalEndpoints}
	}
	a.services.Sync(services)
}

// updated says that so many updates are in the kernel. Only when none is left
// does the proxy count as up to date.
func (a *answers) updated(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queued -= n; a.queued > 0 {
		return
	}
	for _, f := range families {
		a.proxy.Updated(f)
	}
}

// Problems implements reconciler.Observer.
func (a *answers) Problems(problems []lb.Problem) { a.problems.setInput(problems) }

// serve answers until the context ends.
func (a *answers) serve(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error { a.services.Run(ctx); return nil })
	config := func() any { return a.cfg }
	for _, s := range []struct {
		address string
		handler http.Handler
	}{
		{a.cfg.HealthzAddress, a.proxy.Handler()},
		{a.cfg.MetricsAddress, a.metrics.Handler(metrics.HandlerConfig{Config: config, Profiling: a.cfg.Profiling})},
	} {
		if s.address == "" {
			continue
		}
		group.Go(func() error {
			return httpserve.Run(ctx, httpserve.Config{
				Address: s.address, Handler: s.handler, HardFail: a.cfg.BindHardFail,
				Report: func(err error) {
					a.log.Warn("serve HTTP, will try again", zap.String("address", s.address), zap.Error(err))
				},
			})
		})
	}
}

// snapshot reads what is pinned, for whoever scrapes; perBackend has it tell of every
// backend.
func snapshot(root string, perBackend bool) (metrics.Snapshot, error) {
	i, err := datapath.Inspect(root)
	if err != nil {
		return metrics.Snapshot{}, err
	}
	defer i.Close()
	c, err := i.Content()
	if err != nil {
		return metrics.Snapshot{}, err
	}
	status, err := i.Status()
	if err != nil {
		return metrics.Snapshot{}, err
	}
	maps, err := i.Maps()
	if err != nil {
		return metrics.Snapshot{}, err
	}
	drops, err := i.Drops()
	if err != nil {
		return metrics.Snapshot{}, err
	}
	loads := i.Loads()
	s := metrics.Snapshot{
		Frontends: len(c.Frontends), Backends: len(c.Backends), Suspects: countSuspects(loads), Tables: len(c.Tables), Services: len(c.Services),
		Writes: status.Writes, Events: status.Counters, Drops: status.Drops, Attached: map[string]bool{},
	}
	s.BackendLoads, s.BackendsOmitted = backendMetrics(c, loads, perBackend)
	for _, m := range maps {
		s.Maps = append(s.Maps, metrics.Map{Name: m.Name, Entries: m.Entries, MaxEntries: m.MaxEntries, Bytes: m.Bytes})
	}
	for _, h := range status.Hooks {
		s.Attached[h.Name] = h.Attached
	}
	for id, reasons := range drops {
		for reason, n := range reasons {
			s.ServiceDrops = append(s.ServiceDrops, metrics.ServiceDrops{Service: c.Services[id].ServiceName, Port: c.Services[id].Port, Reason: reason, Count: n})
		}
	}
	return s, nil
}

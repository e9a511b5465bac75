package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/healthcheck"
	"github.com/headgate/headgate/pkg/httpserve"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
)

// families are those that a dual-stack kube-proxy answers for. Both are
// programmed by one loop here.
var families = []lb.Family{lb.IPv4, lb.IPv6}

// statusServer is what others are told of the agent: metrics, health, and the
// health-check NodePorts. It observes the reconciler.
type statusServer struct {
	cfg      Config
	log      *zap.Logger
	metrics  *metrics.Metrics
	proxy    *healthcheck.ProxyServer
	services *healthcheck.ServiceServer
	problems *problems
	live     *live
	inbox    *reconciler.Inbox // of the loop that people ask
	whole    atomic.Bool       // everything was compared with the kernel once: later, changes are
	last     *lastHealth

	open     func() (*datapath.Reader, error) // of what is in force
	asker    asker                            // the same
	former   map[netip.Addr]plan.Peer         // in force when this agent came
	entries  *entryCounts
	told     toldPorts // to who scrapes
	restored restored
	forceLog *reconciler.ProblemLog // of problems of programs

	failedWrites int // attempts in a row, as the reconciler tells of them

	mu     sync.Mutex
	queued int    // updates that were handed over and not yet brought in
	zone   string // of the node, "" where it is not known
}

var _ reconciler.Observer = (*statusServer)(nil)

func newStatusServer(cfg Config, log *zap.Logger, reports reporter, measured *metrics.Metrics) *statusServer {
	a := &statusServer{cfg: cfg, log: log, metrics: measured, live: newLive(cfg, time.Now()), entries: newEntryCounts(), forceLog: reconciler.NewProblemLog(log)}
	a.proxy = healthcheck.NewProxyServer(healthcheck.ProxyConfig{Timeout: 2 * cfg.SyncPeriod, Healthz: a.metrics.CountHealthz, Livez: a.metrics.CountLivez})
	a.problems = &problems{log: log, dir: cfg.StateDir, count: a.metrics.SetProblems, reports: reports, backends: reconciler.NewProblemLog(log),
		unserved: map[lb.ServiceName]lb.Problem{}, report: Report{BPFRoot: cfg.Datapath.Root, Conntrack: cfg.Conntrack.Sets()}}
	a.services = healthcheck.NewServiceServer(healthcheck.ServiceConfig{
		Healthy: a.proxy.Fit,
		Report: func(name lb.ServiceName, port uint16, err error) {
			if err != nil {
				log.Warn("serve health-check NodePort, will try again", zap.Stringer("service", name), zap.Error(err))
			}
			a.problems.setUnserved(name, port, err)
		},
	})
	a.last = newLastHealth(cfg, log)
	if cfg.Manifests != "" {
		a.proxy.SetNode(&healthcheck.Node{}) // a folder need not have a Node
	}
	return a
}

// watchDatapath has a datapath read, for metrics and ejected backends.
func (a *statusServer) watchDatapath(open func() (*datapath.Reader, error)) {
	a.open = open
	a.metrics.WatchDatapath(a.snapshot)
}

// countEntries goes through maps to count their entries.
func (a *statusServer) countEntries() (counts map[string]uint32, err error) {
	err = datapath.Look(a.open, func(r *datapath.Reader) error {
		counts, err = r.CountEntries()
		return err
	})
	return counts, err
}

// setNode says what the Node object says.
func (a *statusServer) setNode(n lb.Node) {
	a.mu.Lock()
	a.zone = n.Zone
	a.mu.Unlock()
	a.last.setNode(healthcheck.Node{Deleting: n.Leaving}, a.proxy.SetNode)
}

// queuedUpdate says that a source has handed over an update.
func (a *statusServer) queuedUpdate(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queued++
	for _, f := range families {
		a.proxy.QueuedUpdate(f)
		a.metrics.ObserveQueued(f, now)
	}
}

// Flushed implements reconciler.Observer.
func (a *statusServer) Flushed(t reconciler.Attempt) {
	for _, f := range families {
		a.metrics.ObserveSync(metrics.Sync{Family: f, Full: !a.whole.Load(), Failed: t.Err != nil, End: t.Ended, Took: t.Ended.Sub(t.Began)})
	}
	a.problems.setWrites(a.unwritten(t.Err))
	if t.Err != nil {
		a.metrics.CountReconcileError()
		a.metrics.SetPending(t.Batch.Services, t.Batch.Slices)
		return
	}
	a.whole.Store(true)
	a.proxy.SetAwaited("", time.Time{})
	a.live.changed(t)
	a.metrics.ObserveChanges(t.Batch.Services, t.Batch.Slices)
	a.metrics.SetPending(0, 0)
	for _, f := range families {
		a.metrics.SetNoLocalEndpoints(f, t.NoLocal[f].Internal, t.NoLocal[f].External)
	}
	for _, trigger := range t.Batch.Triggers {
		a.metrics.ObserveProgramming(trigger.Family, trigger.At, t.Ended)
	}
	a.updated(t.Batch.Updates)
	a.services.Change(a.last.change(t.HealthChecks, t.Adopted))
}

// unwritten returns what to tell of an attempt to write changes: of the first that fails nothing, since
// it is tried again at once.
func (a *statusServer) unwritten(err error) []lb.Problem {
	if err == nil {
		a.failedWrites = 0
		return nil
	}
	if a.failedWrites++; a.failedWrites < 2 {
		return nil
	}
	return []lb.Problem{{
		Scope: lb.ScopeNode, Object: "Node " + a.cfg.NodeName, Field: "maps", Reason: "changes of Services cannot be written: " + err.Error(),
		Remedy: "what was in force stays so, and it is tried again: mend what the error names",
	}}
}

// updated says that so many updates are in the kernel. Only when none is left
// does the proxy count as up to date.
func (a *statusServer) updated(n int) {
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
func (a *statusServer) Problems(problems []lb.Problem) { a.problems.setInput(problems) }

// answers are those that others get. They end last: what was brought into the kernel stays,
// and load balancers ask until another process has the ports.
type answers struct {
	group *errgroup.Group
	end   context.CancelFunc
}

// stop ends the answers, and returns why they ended before.
func (a answers) stop() error {
	a.end()
	return a.group.Wait()
}

// serve answers until that is stopped. Where an answer cannot be given, and is to be, failed
// is called.
func (a *statusServer) serve(failed func()) answers {
	ctx, end := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	context.AfterFunc(ctx, failed)
	group.Go(func() error { a.services.Run(ctx); return nil })
	if a.cfg.StateDir != "" {
		group.Go(func() error { return a.serveSocket(ctx) })
	}
	if a.cfg.MetricsAddress != "" {
		group.Go(func() error { a.entries.watch(ctx, a.countEntries, a.log); return nil })
	}
	config := func() any { return a.cfg.Settings }
	for _, s := range []struct {
		flag, address string
		handler       http.Handler
		certificate   *httpserve.Certificate
		limit         *httpserve.Limit
	}{
		{"--healthz-bind-address", a.cfg.HealthzAddress, a.proxy.Handler(), nil, &httpserve.Limit{Lasts: httpserve.Brief}},
		{"--metrics-bind-address", a.cfg.MetricsAddress, a.metrics.Handler(metrics.HandlerConfig{Config: config, Profiling: a.cfg.Profiling}), a.certificate(), &httpserve.Limit{}},
	} {
		if s.address == "" {
			continue
		}
		group.Go(func() error {
			err := httpserve.Run(ctx, httpserve.Config{
				Address: s.address, Handler: s.handler, Certificate: s.certificate, Limit: s.limit, HardFail: a.cfg.BindHardFail,
				Report: func(err error) {
					a.log.Warn("serve HTTP, will try again", zap.String("address", s.address), zap.Error(err), zap.String("remedy", serveRemedy(err, s.flag)))
				},
			})
			if err != nil {
				return fmt.Errorf("%w; %s", err, serveRemedy(err, s.flag))
			}
			return nil
		})
	}
	return answers{group, end}
}

// certificate returns that of the metrics, nil where they are served without.
func (a *statusServer) certificate() *httpserve.Certificate {
	files := a.cfg.MetricsTLS
	if files.CertFile == "" {
		return nil
	}
	return &httpserve.Certificate{CertFile: files.CertFile, KeyFile: files.KeyFile, Report: func(err error) {
		a.log.Warn("serve metrics with the certificate from before", zap.Error(err), zap.String("remedy", certificateRemedy))
	}}
}

const certificateRemedy = "put a certificate and its key, in PEM, at --metrics-tls-cert-file and --metrics-tls-key-file"

// serveRemedy says what to do where an address of a flag is not served.
func serveRemedy(err error, flag string) string {
	if errors.Is(err, httpserve.ErrCertificate) {
		return certificateRemedy
	}
	return "free the address, or name another with " + flag
}

// snapshot reads what is in force, for whoever scrapes.
func (a *statusServer) snapshot() (s metrics.Snapshot, err error) {
	err = datapath.Look(a.open, func(r *datapath.Reader) error {
		s, err = a.read(r)
		return err
	})
	a.tellZones(s.BackendLoads)
	return s, err
}

func (a *statusServer) read(r *datapath.Reader) (s metrics.Snapshot, err error) {
	t, err := r.Totals()
	if err != nil {
		return s, err
	}
	status, err := r.Status()
	if err != nil {
		return s, err
	}
	maps, err := r.Maps(t, a.entries.get())
	if err != nil {
		return s, err
	}
	s = metrics.Snapshot{
		Frontends: t.Frontends, Backends: t.Backends, Ejected: t.Ejected, Tables: t.Tables, Services: t.Services,
		Writes: status.Writes, Events: status.Counters, Drops: status.Drops, Attached: programMetrics(status), Maps: mapMetrics(maps),
	}
	if s.Peers, err = peerMetrics(r); err != nil {
		return s, err
	}
	most := int(a.cfg.MetricsServices)
	if a.cfg.MetricsPerBackend {
		most = math.MaxInt
	}
	if err := a.told.metrics(r, most, &s); err != nil {
		return s, err
	}
	s.BackendLoads, s.BackendsOmitted, err = backendMetrics(r, a.cfg.MetricsPerBackend, t.Failing > 0)
	return s, err
}

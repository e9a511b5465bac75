// Package agent wires the parts together: it is the only one that knows them
// all.
package agent

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/peers"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/pkg/source/kube"
	"github.com/headgate/headgate/pkg/source/manifest"
)

// Run is an agent until the context ends, or with InitOnly until the programs
// are in force. What it has brought into the kernel stays there.
func Run(ctx context.Context, cfg Config, log *zap.Logger) error {
	collectGarbageAt(garbageAtFirst)
	if cfg.Datapath.Cgroup == "" {
		root, err := cgroup.Root()
		if err != nil {
			return err
		}
		cfg.Datapath.Cgroup = root
	}
	if err := setOOMScoreAdj(oomScoreAdjFile, cfg.OOMScoreAdj); err != nil {
		log.Warn("protect the agent from the OOM killer", zap.Error(err))
	}
	key, unkept, err := cfg.hashKey()
	if err != nil {
		return err
	}
	if cfg.InitOnly {
		return initialize(cfg, key, log)
	}
	if err := run(ctx, cfg, key, unkept, log); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// run has the sources begin while the datapath is opened, and lets both work until the
// context ends or one of them cannot go on.
func run(ctx context.Context, cfg Config, key maglev.Key, unkept []lb.Problem, log *zap.Logger) error {
	if err := datapath.CheckMachine(cfg.Datapath); err != nil {
		return err // what the node lacks is said first
	}
	measured := metrics.New(cfg.Version)
	source, reports, err := newSource(cfg, log, measured)
	if err != nil {
		return err
	}
	in := newIntake(cfg, log, newStatusServer(cfg, log, reports, measured))
	in.status.problems.setKey(unkept)
	group, ctx := errgroup.WithContext(ctx)
	opened := make(chan struct{})
	group.Go(func() error {
		err := source.Run(ctx, in.update)
		select { // as is what the kernel lacks
		case <-opened:
		case <-ctx.Done():
		}
		return err
	})
	if api, ok := reports.(interface{ Health() kube.Health }); ok {
		group.Go(func() error { in.status.watchContact(ctx, api.Health); return nil })
	}
	group.Go(func() error {
		dp, err := openDatapath(cfg, key, log, in.status.problems)
		if err != nil {
			return err
		}
		defer dp.Close()
		close(opened)
		return work(ctx, cfg, key, log, in, dp)
	})
	return group.Wait()
}

// kernelReport hears what only the datapath knows.
type kernelReport interface {
	setSockets(how string)
	setXDP(why map[string]string)
}

// nobody hears nothing.
type nobody struct{}

func (nobody) setSockets(string)        {}
func (nobody) setXDP(map[string]string) {}

// openDatapath takes the node. How sockets are destroyed is reported once it is known, and
// what drivers do.
func openDatapath(cfg Config, key maglev.Key, log *zap.Logger, told kernelReport) (*datapath.Datapath, error) {
	own := cfg.Datapath
	own.Node, own.Version, own.HashKey = cfg.NodeName, cfg.Version, key
	own.Sizes, own.Pods, own.XDP = datapath.DefaultSizes, cfg.PodDevices.watched(), len(cfg.XDP) > 0
	own.Carrying = cfg.Forwarding.Carries()
	own.OutsideUDP, own.CarryPort = cfg.Encapsulation == EncapsulationUDP, peers.Port
	if own.Carrying {
		var err error
		if own.CarryKeys, err = cfg.carryKeys(); err != nil {
			return nil, err
		}
		own.CarryAlike = peers.Alike(key)
	}
	own.TCPTimeout = cfg.Conntrack.TCPEstablishedTimeout
	own.ReportSockets = func(how string) {
		log.Info("sockets are " + how)
		told.setSockets(how)
	}
	own.ReportXDP = func(why map[string]string) {
		for _, device := range slices.Sorted(maps.Keys(why)) {
			log.Info("the driver of a device repeats nothing, TC does all", zap.String("device", device), zap.String("why", why[device]))
		}
		told.setXDP(why)
	}
	dp, err := datapath.Open(own)
	if err != nil {
		return nil, err
	}
	log.Info("datapath open", zap.String("cgroup", own.Cgroup), zap.String("bpf-root", own.Root), zap.Uint64("writes", dp.Writes()))
	if err := netdev.TrackAsBefore(own.Root); err != nil { // somebody was killed who removed an agent's programs
		log.Warn("end a hand-over to the kernel's connection tracking", zap.Error(err))
	}
	if err := setKernelConntrack(conntrackDir, cfg.Conntrack); err != nil {
		log.Warn("configure the kernel's connection tracking", zap.Error(err))
	}
	return dp, nil
}

// work brings what comes in into the kernel, until the context ends or a part of it
// cannot go on.
func work(ctx context.Context, cfg Config, key maglev.Key, log *zap.Logger, in *intake, dp *datapath.Datapath) error {
	in.status.watchDatapath(dp.Reader)
	in.status.asker, in.status.former = dp, map[netip.Addr]plan.Peer{}
	for _, p := range dp.FormerPeers() {
		in.status.former[p.Theirs] = p
	}
	r, err := reconciler.New(log, in.inbox, dp, cfg.Limits)
	if err != nil {
		return err
	}
	r.Balance(cfg.policy(), key)
	r.ExternalIPs(lb.ExternalIPs{Allowed: cfg.Convert.ExternalIPs.Allowed, OffNode: cfg.Convert.ExternalIPs.OffNode})
	r.Servers(netdev.Servers)
	r.Observe(in.status)
	uplinks, err := dp.Uplinks()
	if err != nil {
		return err
	}
	in.status.keepDrained(r)
	in.status.begin(dp.Serves())
	ctx, end := context.WithCancel(ctx)
	defer end()
	answers := in.status.serve(end)
	group, ctx := errgroup.WithContext(ctx)
	if in.prober != nil {
		r.Probe(in.prober)
		group.Go(func() error { in.prober.Run(ctx); return nil })
	}
	if in.peers != nil {
		r.Probe(in.peers)
		group.Go(func() error { in.peers.Run(ctx, r.Ready()); return nil })
	}
	group.Go(func() error { return r.Run(ctx) })
	group.Go(func() error { in.status.live.begins(ctx, r.Ready(), r.TriedDevices()); return nil })
	group.Go(func() error { returnMemory(ctx, r.Ready()); return nil })
	group.Go(func() error {
		if err := in.status.clearEjected(ctx, r.Ready(), in.inbox); err != nil {
			log.Warn("clear backends that an earlier configuration ejected", zap.Error(err))
		}
		return nil
	})
	group.Go(func() error { return netdev.WatchAddresses(ctx, in.setLocal) })
	group.Go(func() error {
		return in.devices.watch(ctx, cfg.patterns(), slices.Sorted(maps.Keys(uplinks)))
	})
	group.Go(func() error { in.status.watchEjected(ctx); return nil })
	err = group.Wait()
	if failed := answers.stop(); failed != nil {
		return failed
	}
	return err
}

// source is where Services come from.
type source interface {
	// Run calls update with everything there is, then with what changes, from
	// one goroutine, until the context ends.
	Run(ctx context.Context, update func(lb.Update)) error
}

// newSource returns the source that the configuration asks for, and who tells
// the owners of its Services what is wrong, nil where nobody does.
func newSource(cfg Config, log *zap.Logger, measured *metrics.Metrics) (source, reporter, error) {
	if cfg.Manifests != "" {
		// Files name no prefixes: without the flag there are none, also where an earlier agent had some.
		prefixes := append([]netip.Prefix{}, cfg.ServiceCIDRs...)
		files := manifest.New(cfg.Manifests, cfg.NodeName).Convert(cfg.Convert)
		known := &withLastNode{source: files, unknown: lb.Node{Name: cfg.NodeName}, file: cfg.stateFile(nodeFile), log: log}
		return &withServiceCIDRs{source: known, prefixes: prefixes}, nil, files.Check() // before programs are attached
	}
	api := cfg.Cluster()
	api.Requests = measured
	api.Notice = func(text string) { log.Info(text) }
	api.ServersFile = cfg.stateFile(serversFile)
	k, err := kube.New(api)
	if err != nil {
		return nil, nil, err
	}
	return &withServiceCIDRs{source: k, prefixes: cfg.ServiceCIDRs}, k, nil
}

// withServiceCIDRs says in the first update which prefixes belong to Services,
// where the configuration knows some.
type withServiceCIDRs struct {
	source
	prefixes []netip.Prefix
}

// Run implements source.
func (w *withServiceCIDRs) Run(ctx context.Context, update func(lb.Update)) error {
	return w.source.Run(ctx, func(u lb.Update) {
		if w.prefixes != nil {
			u.ServiceCIDRs = w.prefixes
		}
		update(u)
	})
}

// Package agent wires the parts together: it is the only one that knows them
// all.
package agent

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/pkg/cgroup"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/pkg/source/kube"
	"github.com/headgate/headgate/pkg/source/manifest"
)

// Run is an agent until the context ends, or with InitOnly until the programs
// are in force. What it has brought into the kernel stays there.
func Run(ctx context.Context, cfg Config, log *zap.Logger) error {
	if cfg.Cgroup == "" {
		root, err := cgroup.Root()
		if err != nil {
			return err
		}
		cfg.Cgroup = root
	}
	key, err := cfg.hashKey()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	measured := metrics.New(cfg.Version)
	source, tell, err := beginSource(ctx, cfg, log, measured)
	if err != nil {
		cancel()
		return err
	}
	defer func() { cancel(); <-source.ended }()
	answers := newAnswers(cfg, log, tell, measured)
	dp, err := openDatapath(cfg, key, log, answers.problems.setSockets)
	if err != nil {
		return err
	}
	defer dp.Close()
	if cfg.InitOnly {
		return initialize(cfg, dp, log)
	}
	r, err := reconciler.New(log, dp, cfg.Limits)
	if err != nil {
		return err
	}
	r.Balance(cfg.algorithm(), !cfg.IgnoreHealth, key)
	r.Observe(answers)
	return work(ctx, cfg, log, source, r, answers)
}

// openDatapath takes the node. What becomes of sockets is told once it is known.
func openDatapath(cfg Config, key maglev.Key, log *zap.Logger, told func(how string)) (*datapath.Datapath, error) {
	dp, err := datapath.Open(datapath.Config{
		Root: cfg.BPFRoot, Cgroup: cfg.Cgroup, Node: cfg.NodeName, Version: cfg.Version,
		Sizes: datapath.DefaultSizes, Promises: cfg.Promises, Affinities: cfg.Affinities, Flows: cfg.Flows,
		HashKey: key, SuspectAfter: cfg.SuspectAfter, MaxEjected: cfg.MaxEjected,
		Pods: cfg.PodDevices.watched(), Redirect: cfg.Redirect, Filters: cfg.Filters,
		Told: func(how string) {
			log.Info("sockets are " + how)
			told(how)
		},
	})
	if err != nil {
		return nil, err
	}
	log.Info("datapath open", zap.String("cgroup", cfg.Cgroup), zap.String("bpf-root", cfg.BPFRoot), zap.Uint64("writes", dp.Writes()))
	if err := setKernelConntrack(conntrackDir, cfg.KernelConntrack); err != nil {
		log.Warn("configure the kernel's connection tracking", zap.Error(err))
	}
	return dp, nil
}

// work lets what watches tell the reconciler, until the context ends or one of
// them cannot go on.
func work(ctx context.Context, cfg Config, log *zap.Logger, source source, r *reconciler.Reconciler, answers *answers) error {
	addresses := newNodeAddresses(cfg.NodePorts, cfg.NodePortLoopback, r.SetNodeAddresses)
	devices := newDeviceList(cfg.PodDevices, log, r.SetDevices)
	group, ctx := errgroup.WithContext(ctx)
	startProbes(ctx, cfg, log, r, group)
	group.Go(func() error { r.Run(ctx); return nil })
	group.Go(func() error {
		return source.Run(ctx, func(u lb.Update) {
			if u.Node != nil {
				answers.setNode(*u.Node)
				addresses.setNode(*u.Node)
			}
			devices.setPods(u.Pods)
			r.Update(u)
		})
	})
	group.Go(func() error { return netdev.WatchAddresses(ctx, addresses.setLocal) })
	group.Go(func() error {
		return netdev.WatchDevices(ctx, cfg.Devices, devices.pods, devices.setDevices, devices.missed)
	})
	group.Go(func() error { answers.watchSuspects(ctx); return nil })
	answers.serve(ctx, group)
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// source is where Services come from.
type source interface {
	// Run calls update with everything there is, then with what changes, from
	// one goroutine, until the context ends.
	Run(ctx context.Context, update func(lb.Update)) error
}

// beginSource begins to ask for Services, unless only the programs are wanted.
func beginSource(ctx context.Context, cfg Config, log *zap.Logger, measured *metrics.Metrics) (*early, reporter, error) {
	if cfg.InitOnly {
		return begin(ctx, silent{}), nil, nil
	}
	source, tell, err := newSource(cfg, log, measured)
	if err != nil {
		return nil, nil, err
	}
	return begin(ctx, source), tell, nil
}

// newSource returns the source that the configuration asks for, and who tells
// the owners of its Services what is wrong, nil where nobody does.
func newSource(cfg Config, log *zap.Logger, measured *metrics.Metrics) (source, reporter, error) {
	if cfg.Manifests != "" {
		return &withServiceCIDRs{source: manifest.New(cfg.Manifests, cfg.NodeName).Convert(cfg.Convert), prefixes: cfg.ServiceCIDRs}, nil, nil
	}
	cfg.Kube.Node, cfg.Kube.Version, cfg.Kube.Convert = cfg.NodeName, cfg.Version, cfg.Convert
	cfg.Kube.Requests = measured
	cfg.Kube.Notice = func(text string) { log.Info(text) }
	if cfg.StateDir != "" {
		cfg.Kube.ServersFile = filepath.Join(cfg.StateDir, serversFile)
	}
	cfg.Kube.Pods = cfg.PodDevices.watched()
	k, err := kube.New(cfg.Kube)
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

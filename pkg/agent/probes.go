package agent

import (
	"context"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/probe"
	"github.com/headgate/headgate/pkg/reconciler"
)

// startProbes has backends asked where Services want it. Where nobody is ever a
// suspect there is nothing to ask for.
func startProbes(ctx context.Context, cfg Config, log *zap.Logger, r *reconciler.Reconciler, group *errgroup.Group) {
	if cfg.SuspectAfter == 0 {
		return
	}
	said := verdictLog{log: log, bad: map[lb.AddrPort]bool{}}
	p := probe.New(int(cfg.SuspectAfter), func(ctx context.Context, v probe.Verdict) {
		said.note(v)
		r.Judge(ctx, v.Backend, v.Err != nil, v.For)
	})
	r.Probe(p)
	group.Go(func() error { p.Run(ctx); return nil })
}

// verdictLog says once that a backend fails its probes, and once that it does not.
type verdictLog struct {
	log *zap.Logger
	mu  sync.Mutex
	bad map[lb.AddrPort]bool
}

func (l *verdictLog) note(v probe.Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch was := l.bad[v.Backend]; {
	case v.Err != nil && !was:
		l.bad[v.Backend] = true
		l.log.Warn("backend fails its probes", zap.Stringer("backend", v.Backend), zap.Error(v.Err))
	case v.Err == nil && was:
		delete(l.bad, v.Backend)
		l.log.Info("backend passes its probe again", zap.Stringer("backend", v.Backend))
	}
}

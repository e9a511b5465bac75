package agent

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/probe"
)

// newProber returns what asks backends where Services want it, nil where that is not
// allowed, or where no backend is ever ejected.
func newProber(cfg Config, log *zap.Logger, to judge, problems *problems) *probe.Prober {
	if cfg.Datapath.EjectAfter == 0 || !cfg.Convert.Probes {
		return nil
	}
	return probe.New(probing(cfg, log, to, problems))
}

// judge takes verdicts on backends.
type judge interface {
	Judge(ctx context.Context, backend lb.AddrPort, eject bool, noRetryFor time.Duration)
}

// probing is how backends are asked, and what becomes of what that says.
func probing(cfg Config, log *zap.Logger, to judge, problems *problems) probe.Config {
	logged := verdictLog{log: log, bad: map[lb.AddrPort]bool{}}
	carryPort := uint16(0)
	if cfg.Datapath.OutsideUDP {
		carryPort = cfg.Datapath.CarryPort
	}
	return probe.Config{
		MayCarry: probe.MayCarry(), CarryPort: carryPort,
		Failures: int(cfg.Datapath.EjectAfter), Allowed: cfg.ProbePrefixes, Problems: problems.setProbes,
		Notify: func(ctx context.Context, v probe.Verdict) {
			logged.note(v)
			to.Judge(ctx, v.Backend, v.Err != nil, v.For)
		},
	}
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

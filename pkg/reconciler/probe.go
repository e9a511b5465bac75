package reconciler

import (
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
)

// Prober asks the backends of Services whether they are well.
type Prober interface {
	// SetFrontends says what a Service is now, nil for gone. It does not wait.
	SetFrontends(lb.ServiceName, []lb.Frontend)
}

// suspecter is a datapath that takes the word of others for how a backend is.
type suspecter interface {
	// Suspect makes a backend a suspect that gets no trial for so long, or one like
	// all others. It returns false where there is no such backend.
	Suspect(backend lb.AddrPort, suspect bool, noTrialFor time.Duration) (bool, error)
}

// verdict is what Judge was told.
type verdict struct {
	backend    lb.AddrPort
	suspect    bool
	noTrialFor time.Duration
}

// Probe has a prober told what Services are from now on. It is for the time before
// Run.
func (r *Reconciler) Probe(p Prober) { r.prober = p }

// judge brings a verdict into the kernel. The next one comes soon: none is repeated.
func (r *Reconciler) judge(v verdict) {
	dp, ok := r.dp.(suspecter)
	if !ok {
		return
	}
	if _, err := dp.Suspect(v.backend, v.suspect, v.noTrialFor); err != nil {
		r.log.Warn("record the result of a probe", zap.Stringer("backend", v.backend), zap.Error(err))
	}
}

// unasked asks nobody.
type unasked struct{}

func (unasked) SetFrontends(lb.ServiceName, []lb.Frontend) {}

package reconciler

import (
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
)

// Prober asks the backends of Services, or their nodes, whether they are well.
type Prober interface {
	// SetFrontends says what a Service is now, nil for gone. It does not wait.
	SetFrontends(lb.ServiceName, []lb.Frontend)
}

// settler is a prober that knows by itself, from what Services are, how packets get to their
// backends.
type settler interface {
	// Settle returns when the inbox has that.
	Settle()
}

// settle has the first picture be whole, with how packets get to backends: what begins as soon as
// that is in force would go another way to its end.
func (r *Reconciler) settle() {
	if r.settled || !r.complete() {
		return
	}
	r.settled = true
	for _, p := range r.probers {
		if s, can := p.(settler); can {
			s.Settle()
		}
	}
	r.gather()
}

// ejecter is a datapath that takes the word of others for how a backend is.
type ejecter interface {
	// Eject ejects a backend, which gets no retry for so long, or makes it one like
	// all others. It returns false where there is no such backend.
	Eject(backend lb.AddrPort, eject bool, noRetryFor time.Duration) (bool, error)
}

// verdict is what Judge was told.
type verdict struct {
	backend    lb.AddrPort
	eject      bool
	noRetryFor time.Duration
}

// Probe has a prober, beside others, told what Services are from now on. It is for the time
// before Run.
func (r *Reconciler) Probe(p Prober) { r.probers = append(r.probers, p) }

// judge brings a verdict into the kernel. The next one comes soon: none is repeated.
func (r *Reconciler) judge(v verdict) {
	dp, ok := r.dp.(ejecter)
	if !ok {
		return
	}
	if _, err := dp.Eject(v.backend, v.eject, v.noRetryFor); err != nil {
		r.log.Warn("record the result of a probe", zap.Stringer("backend", v.backend), zap.Error(err))
	}
}

package datapath

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Suspect makes a backend a suspect by what somebody else has found out, or one like
// all others. A suspect gets no trial for so long. It returns false where there is no such
// backend, or where nobody is ever a suspect. How many of a Service are avoided at
// most is up to the programs.
func (d *Datapath) Suspect(backend lb.AddrPort, suspect bool, noTrialFor time.Duration) (bool, error) {
	b := d.maps.findBackend(encodeAddrPort(backend))
	if b == nil || d.cfg.SuspectAfter == 0 {
		return false, nil
	}
	now, err := coarseClock()
	if err != nil {
		return false, err
	}
	was := atomic.LoadUint32(&b.Failures) >= d.cfg.SuspectAfter
	switch {
	case suspect:
		// Before it is one: whoever sees a suspect sees when its trial is.
		atomic.StoreUint64(&b.NextTrialNs, uint64(now)+uint64(noTrialFor))
		if was {
			return true, nil
		}
		atomic.StoreUint32(&b.Trials, 0)
		atomic.StoreUint32(&b.SuspectSinceS, uint32(time.Duration(now)/time.Second))
		atomic.StoreUint32(&b.Failures, d.cfg.SuspectAfter)
	case was:
		atomic.StoreUint64(&b.SlowStartFromNs, uint64(now))
		atomic.StoreUint32(&b.Failures, 0)
	}
	return true, nil
}

// findBackend returns the element of a backend, nil where it has none.
func (s *mapSet) findBackend(to headgateAddrPort) *headgateBackend {
	for id := uint32(1); id < s.backends.len; id++ {
		if b := s.backends.at(id); b.To == to {
			return b
		}
	}
	return nil
}

package reconciler

import (
	"maps"
	"net/netip"
	"time"

	"go.uber.org/zap"
)

// goneAfter is how long an address is no longer the node's before flows with it go: DHCP clients
// remove an address and add it again.
const goneAfter = 5 * time.Second

// sourceFreer is a datapath that frees flows by the source address that they give to packets.
type sourceFreer interface {
	// FreeSources frees flows with another source than these, and returns how many there were. It
	// may be called while another call is under way.
	FreeSources(own map[netip.Addr]bool) (freed int, err error)
}

// sources are the addresses that flows may give to packets: those of the node.
type sources struct {
	addresses map[netip.Addr]bool // as watched
	own       map[netip.Addr]bool // these and those of the devices; nil: unknown
	then      map[netip.Addr]bool // own, when the timer began; nil: it does not run
}

// noteSources follows changes of the addresses of the node or of its devices. If one
// went, and at the start, flows are looked for later.
func (r *Reconciler) noteSources() {
	s := &r.sources
	if s.addresses == nil {
		return
	}
	own := maps.Clone(s.addresses)
	for _, d := range r.attached {
		own[d.IP4], own[d.IP6] = true, true
	}
	delete(own, netip.Addr{}) // of devices without an address of a family
	went := s.own == nil || lacks(own, s.own)
	if s.own = own; went && s.then == nil {
		r.freeSourcesLater()
	}
}

// freeSourcesLater has the flows freed whose source is an address of the node neither now nor then.
func (r *Reconciler) freeSourcesLater() {
	r.sources.then = r.sources.own
	r.due.gone.Reset(goneAfter)
}

// freeSources frees them beside the loop, once devices have their new addresses.
func (r *Reconciler) freeSources() {
	dp, ok := r.dp.(sourceFreer)
	if !ok {
		return
	}
	if r.devicesChanged || r.attached == nil {
		r.due.gone.Reset(goneAfter)
		return
	}
	s := &r.sources
	stay := maps.Clone(s.own)
	maps.Copy(stay, s.then)
	if s.then = nil; lacks(s.own, stay) {
		r.freeSourcesLater()
	}
	r.beside.start(func() func() bool {
		freed, err := dp.FreeSources(stay)
		return func() bool {
			if err != nil {
				r.log.Warn("remove flows with former addresses of the node, will try again", zap.Error(err))
				r.freeSourcesLater()
			} else if freed > 0 {
				r.log.Info("removed flows with former addresses of the node", zap.Int("flows", freed))
			}
			return false
		}
	})
}

// lacks says whether a set lacks an element of another.
func lacks(set, of map[netip.Addr]bool) bool {
	for a := range of {
		if !set[a] {
			return true
		}
	}
	return false
}

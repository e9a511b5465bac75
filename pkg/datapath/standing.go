package datapath

import "slices"

// Tracepoints tell of connections that fail. Those that stand are found here, while a
// backend has failures: a backend that takes connections again is avoided no longer,
// however long these last.

// The programs that note the connections that stand: of sockets of a network namespace
// that have slots, and of those that keep their entry themselves.
var (
	slotNoters   = map[string]string{"standing_tcp": ""}
	storedNoters = map[string]string{"standing_stored": "stored_entries"}
)

// standing is the search for connections that stand. The zero value has not begun.
type standing struct {
	round    round
	failed   uint64   // how many failures had been noted when all backends were looked at
	backends []uint32 // that have failures, by ID
}

func (s *standing) Close() {
	s.round.Close()
	*s = standing{}
}

// NoteStanding notes the success of connections that a backend with failures has taken
// since. While no backend has any it reads a few counters.
func (d *Datapath) NoteStanding() error {
	if !d.isAttached() || !d.object.traced { // not attached yet, or told by sock_ops
		return nil
	}
	if some, err := d.findFailing(); err != nil || !some {
		return err
	}
	slots, err := newMapping[headgateSocketSlot](d.maps.byName["socket_nat"], false)
	if err != nil {
		return err
	}
	defer slots.Close()
	namespaces := namespacesOfSlots(slots, func(s *headgateSocketSlot) bool {
		return s.Entry.Backend.Pad&uint8(headgateEntryFlagENTRY_AWAITED) != 0
	})
	stored, err := d.storedEntries()
	if err != nil {
		return err
	}
	return d.standing.round.run(d, slotNoters, storedNoters, namespaces, stored)
}

// findFailing says whether any backend has failures, or had some a moment ago.
func (d *Datapath) findFailing() (bool, error) {
	counted, err := d.maps.counters()
	if err != nil {
		return false, err
	}
	s := &d.standing
	had := len(s.backends) > 0
	now := counted.BackendFailed + counted.BackendEjected
	if now == s.failed && !had {
		return false, nil
	}
	backends, err := d.maps.allBackends(false)
	if err != nil {
		return false, err
	}
	defer backends.Close()
	if now != s.failed {
		s.failed, s.backends = now, nil
		for id := range backends.len {
			s.backends = append(s.backends, id)
		}
	}
	s.backends = slices.DeleteFunc(s.backends, func(id uint32) bool {
		b := backends.at(id)
		return b.Failures == 0 && b.Ejection == headgateEjectionEJECTION_NONE
	})
	return had || len(s.backends) > 0, nil
}

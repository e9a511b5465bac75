package datapath

import (
	"errors"

	"golang.org/x/sys/unix"
)

// The payload of TCP sockets is counted when they are closed. Here that of sockets which live longer
// is counted as it goes.

// The programs that count: of sockets of a network namespace that have slots, and of those that
// keep their entry themselves.
var (
	slotPayload   = map[string]string{"payload_tcp": ""}
	storedPayload = map[string]string{"payload_stored": "stored_entries"}
)

// payload is what it takes, for the maps that it is of. The zero value has nothing.
type payload struct {
	slots, stored iterators
}

func (p *payload) Close() {
	p.slots.Close()
	p.stored.Close()
	*p = payload{}
}

// countPayload adds what TCP sockets have sent and received since it was called last.
func (d *Datapath) countPayload() error {
	if !d.cfg.Traffic || lockedDown() {
		return nil
	}
	slots, err := newMapping[headgateSocketSlot](d.maps.byName["socket_nat"], false)
	if err != nil {
		return err
	}
	defer slots.Close()
	namespaces := namespacesOfSlots(slots, func(s *headgateSocketSlot) bool {
		return s.Entry.Backend.Protocol == unix.IPPROTO_TCP
	})
	stored, err := d.storedEntries()
	if err != nil || len(namespaces) == 0 && stored == 0 {
		return err
	}
	if err := d.loadPayload(); err != nil {
		return err
	}
	if len(namespaces) > 0 {
		err = EachNamespace(func(_ string, cookie uint64) error {
			if !namespaces[cookie] {
				return nil
			}
			return runIterators(d.census.payload.slots, drained)
		})
	}
	if stored > 0 {
		err = errors.Join(err, runIterators(d.census.payload.stored, drained))
	}
	return err
}

// loadPayload loads the programs, once for the maps in force.
func (d *Datapath) loadPayload() (err error) {
	p := &d.census.payload
	if p.stored != nil {
		return nil
	}
	if p.slots, err = d.newIterators(slotPayload, nil); err != nil {
		return err
	}
	p.stored, err = d.newIterators(storedPayload, nil)
	return err
}

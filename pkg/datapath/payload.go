package datapath

import "golang.org/x/sys/unix"

// The payload of TCP sockets is counted when they are closed. Here that of sockets which live longer
// is counted as it goes.

// The programs that count: of sockets of a network namespace that have slots, and of those that
// keep their entry themselves.
var (
	slotPayload   = map[string]string{"payload_tcp": ""}
	storedPayload = map[string]string{"payload_stored": "stored_entries"}
)

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
	if err != nil {
		return err
	}
	return d.census.payload.run(d, slotPayload, storedPayload, namespaces, stored)
}

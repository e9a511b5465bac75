package datapath

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/plan"
)

// Apply does operations in order. It returns how many it has done: all of them
// if the error is nil, otherwise those before the one that failed: then the error is
// a *plan.OpError. Reserve must have made room before.
//
// Programs that are in force and share maps with these are replaced first. Else an agent that
// died while it replaced them would leave frontends in force that the next one does not know,
// and whose slots that one would give to others.
func (d *Datapath) Apply(ops []plan.Op) (int, error) {
	if d.sharesMaps() {
		if err := d.Attach(); err != nil {
			return 0, err
		}
	}
	for i, op := range ops {
		err := d.maps.apply(op)
		for tries := 0; errors.Is(err, errNoPlace) && tries < placeTries; tries++ {
			if err = d.makePlace(); err == nil {
				err = d.maps.apply(op)
			}
		}
		if err != nil {
			return i, &plan.OpError{Op: op, Err: err}
		}
	}
	return len(ops), nil
}

// sharesMaps says whether programs that are still to be replaced find backends by any of these
// maps.
func (d *Datapath) sharesMaps() bool {
	return !d.isAttached() && slices.ContainsFunc(d.flowsOf, func(s *mapSet) bool {
		return slices.ContainsFunc([]string{"frontends", "slots", "backends"}, func(name string) bool {
			return s != nil && s.byName[name] != nil && sameMap(s.byName[name], d.maps.byName[name])
		})
	})
}

// Grace waits until no program that runs now runs any more. Unlike most calls
// it may be made while another one is under way.
func (d *Datapath) Grace() error { return waitGrace() }

// Writes returns how many operations have written to the maps since they were
// made, whichever process did them.
func (d *Datapath) Writes() uint64 { return d.maps.about.at(0).Writes }

func (s *mapSet) apply(op plan.Op) error {
	if _, ok := op.(plan.Grace); ok {
		return waitGrace()
	}
	s.about.at(0).Writes++
	switch o := op.(type) {
	case plan.PutBackend:
		return s.putBackend(o.ID, headgateBackend{To: encodeAddrPort(o.Backend), Home: plan.HomeUnknown})
	case plan.ClearBackend:
		return s.putBackend(o.ID, headgateBackend{})
	case plan.PutTable:
		s.putTable(o)
	case plan.PutSlots:
		return s.changeSlots(o)
	case plan.PutService:
		return s.nameService(o.ID, o.Service.String())
	case plan.ClearService:
		return s.nameService(o.ID, "")
	case plan.PutSourceRange:
		return s.byName["source_ranges"].Put(encodeSourceRange(o.Range), uint32(1))
	case plan.DeleteSourceRange:
		return ignoreMissing(s.byName["source_ranges"].Delete(encodeSourceRange(o.Range)))
	case plan.PutServiceCIDRs:
		s.putServiceCIDRs(o.Prefixes)
	case plan.PutFrontend:
		return s.putFrontend(o)
	case plan.DeleteFrontend:
		return s.deleteFrontend(encodeAddrPort(o.Key))
	case plan.ClearFrontend:
		s.clearFrontend(encodeAddrPort(o.Key))
	case plan.PutPeer:
		s.putPeer(o)
	case plan.ClearPeer:
		*s.peers.at(o.ID) = headgatePeer{}
	case plan.PutPeerAddress:
		return s.byName["peer_addresses"].Put(encodeAddr(o.Addr), o.ID)
	case plan.DeletePeerAddress:
		return ignoreMissing(s.byName["peer_addresses"].Delete(encodeAddr(o.Addr)))
	case plan.PutHome:
		return s.putHome(o)
	case plan.PutAddress:
		return s.putAddress(encodeAddr(o.Addr), encodeAddress(o.Kind))
	case plan.DeleteAddress:
		return ignoreMissing(s.byName["addresses"].Delete(encodeAddr(o.Addr)))
	default:
		return errors.New("no such operation")
	}
	return nil
}

func (s *mapSet) putBackend(id uint32, b headgateBackend) error {
	return s.backends.put(id, b)
}

func (s *mapSet) putAddress(a headgateIpAddr, kind headgateAddress) error {
	if err := s.knowAddress(a, kind.Kind); err != nil {
		return err
	}
	return s.byName["addresses"].Put(a, kind)
}

func (s *mapSet) putHome(o plan.PutHome) error {
	at, err := s.backends.at(o.ID)
	if err == nil {
		atomic.StoreUint32(&at.Home, o.Home)
	}
	return err
}

// nameService names a Service port, "" for none.
func (s *mapSet) nameService(id uint32, name string) error {
	at, err := s.services.at(id)
	if err == nil {
		writeName(at, name)
	}
	return err
}

// noteRemoval says that a Service may have lost a backend just now: whatever flow was noted
// before is asked for its backend with the next packet. This clock is never behind the coarse
// one by which flows are noted.
func (s *mapSet) noteRemoval() error {
	for {
		now, err := monotonic()
		if err != nil {
			return err
		}
		atomic.StoreUint64(&s.about.at(0).RemovedNs, now)
		s.newEpoch()
		if after, err := monotonic(); err != nil || flowTime(after) == flowTime(now) {
			return err // else a flow may have been noted between: later than that, and not asked
		}
	}
}

// ignoreMissing makes a deletion that was done before a success.
func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// putTable writes a run. Its cursor begins anywhere, so that not every node gives
// its first client the first backend.
func (s *mapSet) putTable(o plan.PutTable) {
	s.putSlots(o.Table.Offset, o.Backends)
	behind := o.Table.Offset + o.Table.Size
	s.putSlots(behind, o.Weights)
	if o.Cursor {
		s.putSlots(behind, []uint32{rand.Uint32()})
	}
}

// changeSlots changes slots that programs may be reading, each in one store. What
// they named is kept, for packets of connections that are older.
func (s *mapSet) changeSlots(o plan.PutSlots) error {
	now, err := coarseClock()
	if err != nil {
		return err
	}
	changes := s.byName["slot_changes"]
	for _, c := range o.Slots {
		slot := o.Table.Offset + c.Index
		change := headgateSlotChange{Was: c.Was, To: c.To, AtNs: uint64(now)}
		if err := changes.Put(slot, change); err != nil {
			return fmt.Errorf("keep what slot %d named: %w", slot, err)
		}
		atomic.StoreUint32(&s.slots.at(slot / slotsPerChunk).Backend[slot%slotsPerChunk], c.To)
	}
	return nil
}

func (s *mapSet) putSlots(offset uint32, backends []uint32) {
	for len(backends) > 0 {
		n := copy(s.slots.at(offset / slotsPerChunk).Backend[offset%slotsPerChunk:], backends)
		offset, backends = offset+uint32(n), backends[n:]
	}
}

// putServiceCIDRs replaces the prefixes. One that is being written looks like
// the end of the list, so that for a moment less is refused, but nothing wrong.
func (s *mapSet) putServiceCIDRs(prefixes []netip.Prefix) {
	for i := range s.cidrs.at(0).Cidr {
		at := &s.cidrs.at(0).Cidr[i]
		atomic.StoreUint32(&at.Mask.Word[0], 0)
		if i >= len(prefixes) {
			*at = headgateServiceCidr{}
			continue
		}
		c := encodePrefix(prefixes[i])
		at.Addr = c.Addr
		copy(at.Mask.Word[1:], c.Mask.Word[1:])
		atomic.StoreUint32(&at.Mask.Word[0], c.Mask.Word[0])
	}
}

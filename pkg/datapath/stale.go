package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
)

// A socket that is closed frees its slot of the socket_nat map, unless no program was in
// force at that moment: then the slot is stale, and its connection stays in flight.
// Stale slots are freed here, beside the loop, once it is certain that their sockets
// are gone: one search after the other went through the network namespace of the
// socket and did not find it, and its entry stayed as it was.

const (
	// staleAfter is how many searches in a row do not find the socket of a slot
	// before the slot is given up. The next one frees it.
	staleAfter = 3
	// searchTime is how long a search goes through namespaces. The next search goes
	// through those that are left.
	searchTime = 300 * time.Millisecond
	// ownerGone is set in the owner of a slot that is given up. No socket has such a
	// cookie, so that programs leave the slot alone.
	ownerGone = 1 << 63
)

// ownerListers are the programs that list the sockets of a namespace that have slots.
var ownerListers = map[string]string{"list_tcp_owners": "", "list_udp_owners": ""}

// stale is the search for stale slots. The zero value has not begun.
type stale struct {
	listers iterators
	of      *ebpf.Map          // the socket_nat map that listers look into
	found   chan search        // what the search under way finds; nil: none is
	visited map[uint64]bool    // namespaces that the searches of this turn went through
	missed  map[uint32]missing // by slot
}

// missing is a slot whose socket the last searches did not find.
type missing struct {
	slot  headgateSocketSlot
	times int
}

// search is what one search finds.
type search struct {
	went    map[uint64]bool // namespaces that it went through, by cookie
	missing map[uint32]headgateSocketSlot
	all     bool // it went through every namespace that was left
	err     error
}

func (s *stale) Close() {
	if s.found != nil {
		<-s.found
	}
	s.listers.Close()
	*s = stale{}
}

// freeStale gives up and frees slots by what the last search found, and begins the
// next one. It does not wait for a search under way.
func (d *Datapath) freeStale() error {
	if d.stale.found == nil {
		return d.searchStale()
	}
	select {
	case s := <-d.stale.found:
		d.stale.found = nil
		return errors.Join(s.err, d.settleStale(s), d.searchStale())
	default:
		return nil
	}
}

// searchStale begins a search, if any slot is in use.
func (d *Datapath) searchStale() error {
	owned, err := d.ownedSlots()
	if err != nil || len(owned) == 0 {
		return err
	}
	if err := d.loadOwnerListers(); err != nil || len(d.stale.listers) < len(ownerListers) {
		return err
	}
	found, listers, visited := make(chan search, 1), d.stale.listers, maps.Clone(d.stale.visited)
	d.stale.found = found
	go func() { found <- listers.search(owned, visited) }()
	return nil
}

func (d *Datapath) loadOwnerListers() error {
	slots := d.maps.byName["socket_nat"]
	if d.stale.of == slots {
		return nil
	}
	listers, err := d.newIterators(ownerListers, nil)
	if err != nil {
		return err
	}
	d.stale.listers.Close()
	d.stale.listers, d.stale.of = listers, slots
	return nil
}

// ownedSlots returns the slots in use by network namespace.
func (d *Datapath) ownedSlots() (map[uint64]map[uint32]headgateSocketSlot, error) {
	slots, err := newMapping[headgateSocketSlot](d.maps.byName["socket_nat"], false)
	if err != nil {
		return nil, err
	}
	defer slots.Close()
	out := map[uint64]map[uint32]headgateSocketSlot{}
	for i := range slots.len {
		s := *slots.at(i)
		if s.Owner == 0 {
			continue
		}
		if out[s.Entry.Netns] == nil {
			out[s.Entry.Netns] = map[uint32]headgateSocketSlot{}
		}
		out[s.Entry.Netns][i] = s
	}
	return out, nil
}

// search looks for the sockets of slots that were in use before it. A namespace that
// cannot be entered, or whose sockets cannot be listed, is none that it went through.
func (i iterators) search(owned map[uint64]map[uint32]headgateSocketSlot, visited map[uint64]bool) search {
	s := search{went: map[uint64]bool{}, missing: map[uint32]headgateSocketSlot{}, all: true}
	// Programs that saw a slot before it was given up are through with it after this.
	if s.err = waitGrace(); s.err != nil {
		return s
	}
	end := time.Now().Add(searchTime)
	_ = EachNamespace(func(_ string, cookie uint64) error {
		switch {
		case len(owned[cookie]) == 0 || visited[cookie]:
		case time.Now().After(end):
			s.all = false
		default:
			s.err = errors.Join(s.err, s.visit(cookie, owned[cookie], i))
		}
		return nil
	})
	return s
}

// visit goes through the sockets of the thread's network namespace.
func (s *search) visit(cookie uint64, owned map[uint32]headgateSocketSlot, listers iterators) error {
	live := map[uint64]bool{}
	err := runIterators(listers, func(r io.Reader) error { return readCookies(r, live) })
	if err != nil {
		return err
	}
	s.went[cookie] = true
	for at, slot := range owned {
		if !live[slot.Owner] {
			s.missing[at] = slot
		}
	}
	return nil
}

func readCookies(r io.Reader, into map[uint64]bool) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("list the sockets with socket NAT entries: %w", err)
	}
	if len(data)%8 != 0 {
		return fmt.Errorf("list the sockets with socket NAT entries: %d bytes, not a multiple of 8", len(data))
	}
	for ; len(data) > 0; data = data[8:] {
		into[binary.NativeEndian.Uint64(data)] = true
	}
	return nil
}

// settleStale gives up slots that were not found often enough, and frees those that
// were given up before the last search.
func (d *Datapath) settleStale(s search) error {
	slots, err := newMapping[headgateSocketSlot](d.maps.byName["socket_nat"], true)
	if err != nil {
		return err
	}
	defer slots.Close()
	d.stale.turn(s)
	for at, m := range d.stale.missed {
		switch {
		case m.times == staleAfter:
			atomic.CompareAndSwapUint64(&slots.at(at).Owner, m.slot.Owner, m.slot.Owner|ownerGone)
			m.slot.Owner |= ownerGone
			d.stale.missed[at] = m
		case m.times > staleAfter:
			d.freeSlot(slots.at(at), &m.slot)
			delete(d.stale.missed, at)
		}
	}
	return nil
}

// turn adds what a search found: a slot of a namespace that it did not go through
// stays as it was, and one that changed begins anew.
func (s *stale) turn(found search) {
	missed := map[uint32]missing{}
	for at, m := range s.missed {
		if !found.went[m.slot.Entry.Netns] {
			missed[at] = m
		}
	}
	for at, slot := range found.missing {
		m := missing{slot, 1}
		if was := s.missed[at]; was.slot == slot {
			m.times += was.times
		}
		missed[at] = m
	}
	s.missed = missed
	if s.visited == nil || found.all {
		s.visited = map[uint64]bool{}
	}
	if !found.all {
		maps.Copy(s.visited, found.went)
	}
}

// freeSlot frees a slot that was given up, and its connection is in flight no more.
func (d *Datapath) freeSlot(at, slot *headgateSocketSlot) {
	if !atomic.CompareAndSwapUint64(&at.Owner, slot.Owner, 0) {
		return
	}
	if backends := d.census.backends; backends.has(&slot.Entry) {
		addInFlight(&backends.at(slot.Entry.BackendId).InFlight, -1)
	}
}

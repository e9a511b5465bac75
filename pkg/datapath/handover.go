package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// Connection is a flow of a client whose packets are balanced, as the datapath alone knows
// it: the kernel's stack sees it between the hooks, where it is for the backend.
type Connection struct {
	Protocol lb.Protocol
	From, To netip.AddrPort // as the client has it
	Inside   netip.AddrPort // the client, as the stack has it
	Backend  netip.AddrPort
	Outside  netip.AddrPort // the client, as a backend on another node has it, else not valid
	State    FlowState
}

// Successor translates connections once programs are gone.
type Successor interface {
	// Forget has it forget what it knows of connections from another time. Nothing is left to it yet. What it
	// cannot forget it may not Take.
	Forget([]Connection) error
	// Take has it translate connections from now on, and returns the places of those that it
	// did not take. One that it translates already it has taken.
	Take([]Connection) (left []int, err error)
	// Done ends what Take has begun, now or in a process that died: the programs are gone, or
	// stay in force.
	Done() error
}

// HandedOver is how many connections others translate now, and how many nobody does any more. Those
// that are over do not count: they are handed over for the sake of their last packets.
type HandedOver struct {
	Done, Left int
	// Why some are left, nil if none are.
	Why error
}

// handOverRounds is how often the flows are read that are there: some may be missed while
// others come and go.
const handOverRounds = 5

// handOver has others translate flows before the programs go. From when it begins no flow
// does, and programs leave to the kernel what that tracks under the address that the client
// has asked for; everything else they translate still.
func (r *Reader) handOver(to Successor, c *HandedOver) error {
	t, err := openFlowTable(r.maps, true)
	if err != nil {
		return err
	}
	defer t.Close()
	_, all := t.connections()
	c.Left = living(all)
	if asks, err := r.asksKernel(); (err != nil || !asks) && len(all) > 0 {
		if c.Left == 0 {
			return nil // nobody misses those that are over
		}
		return orUnsupported(err)
	}
	var unforgotten error
	if !r.maps.handsOver() { // else somebody was killed: what is known is of this time
		unforgotten = to.Forget(all) // what that concerns is not taken below, and all else is
	}
	if err := r.maps.beginHandOver(); err != nil {
		return err
	}
	var one Connection // that is left
	for range handOverRounds {
		flows, all := t.connections()
		if c.Left = living(all); len(all) == 0 {
			return nil
		}
		left, err := to.Take(all)
		err = errors.Join(err, waitAnswers(all))
		t.forget(flows, left)
		c.Done += c.Left
		c.Left = 0
		for _, i := range left {
			if !all[i].State.IsOver() {
				c.Left++
				one = all[i]
			}
		}
		c.Done -= c.Left
		if err != nil {
			return errors.Join(unforgotten, err)
		}
	}
	if c.Left == 0 {
		return nil
	}
	return errors.Join(unforgotten, fmt.Errorf("the kernel has tracked packets of theirs each time, as of %s", one))
}

// living returns how many connections are not over.
func living(all []Connection) (n int) {
	for i := range all {
		if !all[i].State.IsOver() {
			n++
		}
	}
	return n
}

// answersTake is how long flows of datagrams stay after they are taken.
const answersTake = time.Second

// waitAnswers waits until no program uses a flow that it found before connections were taken. A
// program may translate a datagram just before the successor has an entry for it. The kernel then
// makes an entry of its own and does not translate the answer, but the flow does. So it waits for
// answers to datagrams, too. TCP sends again.
func waitAnswers(all []Connection) error {
	if err := waitGrace(); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(c Connection) bool { return c.Protocol == lb.UDP }) {
		time.Sleep(answersTake)
	}
	return nil
}

// String says who asked whom, and how far it is.
func (c Connection) String() string {
	return fmt.Sprintf("%s from %s to %s (backend %s, %s)", c.Protocol, c.From, c.To, c.Backend, c.State)
}

func orUnsupported(err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("the programs in force cannot ask which connections the kernel tracks: %w", errors.ErrUnsupported)
}

// handsOver says whether flows are handed over just now, or were by somebody who was killed.
func (s *mapSet) handsOver() bool { return atomic.LoadUint32(&s.about.at(0).HandsOver) != 0 }

// beginHandOver has programs begin no flow, and look at each packet of those that there are.
func (s *mapSet) beginHandOver() error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	atomic.StoreUint64(&s.about.at(0).RemovedNs, now+uint64(time.Hour))
	atomic.StoreUint32(&s.about.at(0).HandsOver, 1)
	s.newEpoch()
	return waitGrace()
}

// endHandOver is for an agent that starts where a hand-over did not come to its end.
func (s *mapSet) endHandOver() error {
	if !atomic.CompareAndSwapUint32(&s.about.at(0).HandsOver, 1, 0) {
		return nil
	}
	return s.noteRemoval()
}

// asksKernel says whether the programs in force ask the kernel which connections it tracks.
func (r *Reader) asksKernel() (bool, error) {
	o, err := newObject(Config{})
	if err != nil {
		return false, err
	}
	constants, err := r.constants()
	if err != nil {
		return false, err
	}
	at := o.spec.Variables["kernel_tracks"].Offset
	return uint64(at) < uint64(len(constants)) && constants[at] != 0, nil
}

// connections returns those of clients elsewhere, each with its flow where packets come in. What is
// over is not among them, unless it may have a packet still: one that a side has reset may live, since
// that may be forged.
func (t *flowTable) connections() (flows []headgateFlow, all []Connection) {
	const wanted = headgateFlowFlagFLOW_ORIGINAL | headgateFlowFlagFLOW_TO_BACKEND
	for w, f := range t.flows() {
		if headgateFlowFlag(w.seen)&wanted != wanted || w.isKept() {
			continue
		}
		c := Connection{Protocol: lb.Protocol(f.Protocol), State: t.state(w, &f, t.opened)}
		if c.State.IsOver() && (c.State != FlowClosed || w.isHalfOpen() && w.idle(t.opened) > idleEnded) {
			continue
		}
		c.From, c.To = tupleEnds(headgateTuple{Src: f.Src, Dst: f.Dst, SrcPort: f.SrcPort, DstPort: f.DstPort})
		c.Inside, c.Backend = tupleEnds(f.becomes())
		if out, ok := t.find(f.leaving()); ok {
			c.Outside, _ = tupleEnds(out.flow.becomes())
		}
		flows, all = append(flows, f), append(all, c)
	}
	return flows, all
}

// leaving returns the key of the original direction where packets leave for another node.
func (f *headgateFlow) leaving() *headgateFlow {
	now := f.becomes()
	return &headgateFlow{Src: now.Src, Dst: now.Dst, SrcPort: now.SrcPort, DstPort: now.DstPort, Protocol: f.Protocol, Hook: uint8(headgateHookHOOK_OUT)}
}

// forget frees all directions of flows but for those at some places: others translate their
// connections, and an agent that starts now leaves these to them.
func (t *flowTable) forget(flows []headgateFlow, left []int) {
	stays := map[int]bool{}
	for _, i := range left {
		stays[i] = true
	}
	for i := range flows {
		if stays[i] {
			continue
		}
		f := &flows[i]
		for _, key := range []*headgateFlow{f.leaving(), f} {
			if w, there := t.find(key); there {
				t.freeOther(w.flow)
				if w.seize() {
					w.free()
				}
			}
		}
	}
}

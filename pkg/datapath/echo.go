package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/packet"
	"github.com/headgate/headgate/pkg/plan"
)

const (
	// peerAsker is the program that asks a peer, and peers with it answer.
	peerAsker = "ask_peer"
	// echoRoundsMap holds the round of questions to each peer.
	echoRoundsMap = "echo_rounds"
)

// ranByAgent are the programs that are in force nowhere: the agent runs them.
var ranByAgent = []string{probeNoter, peerAsker}

// AnswerEchoes has the datapath in force answer questions of peers for a time; 0 stops it. Other calls may
// be under way.
func (d *Datapath) AnswerEchoes(during time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inForce == nil {
		return nil
	}
	var until uint64
	if during > 0 {
		now, err := monotonic()
		if err != nil {
			return err
		}
		until = now + uint64(during)
	}
	atomic.StoreUint64(&d.inForce.about.at(0).EchoesUntilNs, until)
	return nil
}

// Ask asks a peer for an echo, and returns false if it did not, as there is no such peer in force. Nothing
// is sent if the kernel knows no next hop. Other calls may be under way.
func (d *Datapath) Ask(e plan.Echo) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	program, port := d.held.programs[peerAsker], d.cfg.CarryPort
	if program == nil {
		return false, nil
	}
	id, round := d.roundOf(e.Peer, e.Ours)
	if round == nil {
		return false, nil
	}
	if round.Nonce != e.Nonce {
		atomic.StoreUint64(&round.Nonce, 0)
		atomic.StoreUint64(&round.Back, 0)
		atomic.StoreUint64(&round.Nonce, e.Nonce)
	}
	from := e.Peer
	if e.Question == plan.EchoOfService {
		from, round.Service = e.Service, encodeAddr(e.Service)
	}
	payload := make([]byte, 32) // struct echo_payload, without an answer
	binary.NativeEndian.PutUint64(payload, e.Nonce)
	binary.NativeEndian.PutUint32(payload[8:], id)
	binary.NativeEndian.PutUint32(payload[12:], e.Question)
	answer := packet.Datagram(netip.AddrPortFrom(from, port), netip.AddrPortFrom(e.Ours, port), payload)
	var context [17 * 4]byte // struct __sk_buff of linux/bpf.h up to cb, the last five words
	binary.NativeEndian.PutUint32(context[10*4:], e.Device)
	binary.NativeEndian.PutUint32(context[12*4:], id)
	binary.NativeEndian.PutUint32(context[13*4:], e.Bytes)
	if _, err := program.Run(&ebpf.RunOptions{Data: frameOf(answer), Context: context}); err != nil {
		return false, fmt.Errorf("run %s: %w", peerAsker, err)
	}
	return true, nil
}

// TakeEchoes returns what came back of the round to a peer since the last call. Other calls may be under way.
func (d *Datapath) TakeEchoes(theirs, ours netip.Addr) (e plan.Echoes) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, round := d.roundOf(theirs, ours); round != nil {
		const unlike = 1 << 63 // ECHO_UNLIKE
		back := atomic.SwapUint64(&round.Back, 0)
		e.Questions, e.Unlike = back&^unlike, back&unlike != 0
	}
	return e
}

// roundOf returns the ID of the peer with both addresses of an outer header, and the round of questions to
// it, nil for none.
func (d *Datapath) roundOf(theirs, ours netip.Addr) (uint32, *headgateEchoRound) {
	if d.inForce == nil || d.inForce.peers == nil || d.inForce.echoes == nil {
		return plan.HomeUnknown, nil
	}
	id := d.inForce.findPeer(theirs, ours)
	if id == plan.HomeUnknown || id >= d.inForce.echoes.len {
		return plan.HomeUnknown, nil
	}
	return id, d.inForce.echoes.at(id)
}

// findPeer returns the ID of the peer with both addresses of an outer header.
func (s *mapSet) findPeer(theirs, ours netip.Addr) uint32 {
	to, from := encodeAddr(theirs), encodeAddr(ours)
	for id := plan.FirstPeer; id < s.peers.len; id++ {
		if p := s.peers.at(id); p.Theirs == to && p.Ours == from {
			return id
		}
	}
	return plan.HomeUnknown
}

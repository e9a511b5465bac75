package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"

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

// Echoes says whether the datapath in force answers questions of peers, and asks them. Other calls
// may be under way.
func (d *Datapath) Echoes() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held.programs[peerAsker] != nil
}

// Ask asks a peer for an echo, and returns false where nothing was sent: there is no such peer in
// force, or no next hop that the kernel knows. Other calls may be under way.
func (d *Datapath) Ask(e plan.Echo) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	program, port := d.held.programs[peerAsker], d.cfg.CarryPort
	if program == nil {
		return false, nil
	}
	id, round := d.roundOf(e.Peer)
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
	payload := binary.NativeEndian.AppendUint64(nil, e.Nonce) // struct echo_payload
	payload = binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(payload, id), e.Question)
	answer := packet.Datagram(netip.AddrPortFrom(from, port), netip.AddrPortFrom(decodeAddr(d.inForce.peers.at(id).Ours), port), payload)
	var context [17 * 4]byte // struct __sk_buff of linux/bpf.h up to cb, the last five words
	binary.NativeEndian.PutUint32(context[12*4:], id)
	binary.NativeEndian.PutUint32(context[13*4:], e.Bytes)
	sent, err := program.Run(&ebpf.RunOptions{Data: frameOf(answer), Context: context})
	if err != nil {
		return false, fmt.Errorf("run %s: %w", peerAsker, err)
	}
	return sent != 0, nil
}

// TakeEchoes returns which questions of the round came back from a peer since the last call, a bit for
// each number. Other calls may be under way.
func (d *Datapath) TakeEchoes(peer netip.Addr) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, round := d.roundOf(peer); round != nil {
		return atomic.SwapUint64(&round.Back, 0)
	}
	return 0
}

// roundOf returns the ID of the peer that outer headers go to at an address, and the round of questions
// to it, nil for none.
func (d *Datapath) roundOf(theirs netip.Addr) (uint32, *headgateEchoRound) {
	if d.inForce == nil || d.inForce.peers == nil || d.inForce.echoes == nil {
		return plan.HomeUnknown, nil
	}
	id := d.inForce.findPeer(theirs)
	if id == plan.HomeUnknown || id >= d.inForce.echoes.len {
		return plan.HomeUnknown, nil
	}
	return id, d.inForce.echoes.at(id)
}

// findPeer returns the ID of the peer that outer headers go to at an address.
func (s *mapSet) findPeer(theirs netip.Addr) uint32 {
	to := encodeAddr(theirs)
	for id := plan.FirstPeer; id < s.peers.len; id++ {
		if s.peers.at(id).Theirs == to {
			return id
		}
	}
	return plan.HomeUnknown
}

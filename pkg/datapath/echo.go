package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/packet"
	"github.com/headgate/headgate/pkg/plan"
)

// peerAsker is the program that asks a peer, and peers with it answer.
const peerAsker = "ask_peer"

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
	program := d.held.programs[peerAsker]
	if program == nil || d.inForce == nil || d.inForce.peers == nil {
		return false, nil
	}
	id := d.inForce.findPeer(e.Peer)
	if id == plan.HomeUnknown {
		return false, nil
	}
	var context [17 * 4]byte // struct __sk_buff of linux/bpf.h up to cb, the last five words
	binary.NativeEndian.PutUint32(context[12*4:], id)
	binary.NativeEndian.PutUint32(context[13*4:], e.Bytes)
	sent, err := program.Run(&ebpf.RunOptions{Data: frameOf(packet.Datagram(e.From, e.To, e.Payload)), Context: context})
	if err != nil {
		return false, fmt.Errorf("run %s: %w", peerAsker, err)
	}
	return sent != 0, nil
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

package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// Homes of backends that are no other node. The home of a backend is the node that it
// runs on, as the ID of a peer.
const (
	HomeUnknown uint32 = iota // nothing is carried there
	HomeHere                  // this node, which has an element among the peers, too
	FirstPeer                 // the ID from which on peers are other nodes
)

// Peer is a node that packets are carried to, an element of the peers map.
type Peer struct {
	Theirs, Ours netip.Addr // what an outer header goes to and from, of one family
	Ring         uint64     // where it stands among homes, see RingOf
	MTU          uint32     // of the longest packet that gets there, with its outer header, in bytes
	Usable       bool       // what begins is carried there
	Returns      bool       // it may answer clients as the Service's address
	Silent       bool       // it answers no questions
	Outside      bool       // no node: a backend that takes the outer header off, and passes nothing on
}

// Numbers of questions in a round.
const (
	EchoOfService uint32 = 1  // it comes back from an address of a Service, all others from the peer
	MostEchoes    uint32 = 63 // numbers are below it
)

// Echo is a question: a datagram that the datapath of a peer sends back with an answer. It goes there in the outer
// header of what is carried, and comes back without.
type Echo struct {
	Peer     netip.Addr // what the outer header goes to
	Ours     netip.Addr // and from
	Nonce    uint64     // of the round, not 0
	Question uint32     // number in the round
	Service  netip.Addr // from which EchoOfService comes back
	Bytes    uint32     // of the packet with its outer header, on the way there, if it has fewer
	Device   uint32     // the kernel looks for the way as for packets that come in by it; 0: lo
}

// Echoes are what came back of a round.
type Echoes struct {
	Questions uint64 // a bit for each number
	Unlike    bool   // one is of a peer that carries otherwise
}

// RingOf returns where a node stands among homes, by its name: the same on all nodes.
func RingOf(node string) uint64 {
	sum := sha256.Sum256([]byte(node))
	return binary.BigEndian.Uint64(sum[:])
}

// String returns the value as it stands in dumps.
func (p Peer) String() string {
	s := fmt.Sprintf("to %s from %s ring %x mtu %d", p.Theirs, p.Ours, p.Ring, p.MTU)
	for _, word := range []struct {
		is   bool
		name string
	}{{p.Usable, " usable"}, {p.Returns, " returns"}, {p.Silent, " silent"}, {p.Outside, " outside"}} {
		if word.is {
			s += word.name
		}
	}
	return s
}

// Operations on homes and peers. Bottom-up: a peer, its addresses, then what has it as
// its home; a backend is put before its home.
type (
	// PutPeer writes a peer. Of one that backends have as their home only MTU and what
	// follows it may differ from before.
	PutPeer struct {
		ID   uint32
		Peer Peer
	}
	// ClearPeer empties a peer that no backend has as its home any more.
	ClearPeer struct{ ID uint32 }
	// PutPeerAddress says that what a node carries here comes from an address.
	PutPeerAddress struct {
		Addr netip.Addr
		ID   uint32
	}
	// DeletePeerAddress takes nothing more that is carried here from an address.
	DeletePeerAddress struct{ Addr netip.Addr }
	// PutHome says where a backend runs. It is HomeUnknown after PutBackend.
	PutHome struct{ ID, Home uint32 }
)

func (o PutPeer) String() string           { return fmt.Sprintf("put peer %d %s", o.ID, o.Peer) }
func (o ClearPeer) String() string         { return fmt.Sprintf("clear peer %d", o.ID) }
func (o PutPeerAddress) String() string    { return fmt.Sprintf("put peer address %s %d", o.Addr, o.ID) }
func (o DeletePeerAddress) String() string { return fmt.Sprintf("delete peer address %s", o.Addr) }
func (o PutHome) String() string           { return fmt.Sprintf("put home %d %d", o.ID, o.Home) }

// Owners are the backends that a slot named before, the last one first, none twice, up
// to the first 0: those that the Service has still.
type Owners [7]uint32

// String returns the IDs, separated by commas.
func (o Owners) String() string {
	var s []byte
	for _, id := range o {
		if id == 0 {
			break
		}
		s = fmt.Appendf(s, ",%d", id)
	}
	return string(s[min(1, len(s)):])
}

// After returns the owners of a slot that named now, and is to name next.
func (o Owners) After(now, next uint32) Owners {
	all := append([]uint32{now}, o[:]...)
	var out Owners
	n := 0
	for i, id := range all {
		if id != 0 && id != next && n < len(out) && slices.Index(all, id) == i {
			out[n] = id
			n++
		}
	}
	return out
}

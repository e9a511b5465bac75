package datapath

import (
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// The homes that are no other node are the same in plan and in C, and so is how many
// backends a slot remembers.
var _ = [1]struct{}{}[plan.HomeUnknown-uint32(headgateHomeHOME_UNKNOWN)]
var _ = [1]struct{}{}[plan.HomeHere-uint32(headgateHomeHOME_HERE)]
var _ = [1]struct{}{}[plan.FirstPeer-uint32(headgateHomeFIRST_PEER)]
var _ plan.Owners = headgateSlotChange{}.Was

// peerFlags is the flags of peers, with where each stands in a peer.
var peerFlags = map[headgatePeerFlag]func(*plan.Peer) *bool{
	headgatePeerFlagPEER_USABLE:  func(p *plan.Peer) *bool { return &p.Usable },
	headgatePeerFlagPEER_RETURNS: func(p *plan.Peer) *bool { return &p.Returns },
	headgatePeerFlagPEER_SILENT:  func(p *plan.Peer) *bool { return &p.Silent },
	headgatePeerFlagPEER_OUTSIDE: func(p *plan.Peer) *bool { return &p.Outside },
}

func encodePeer(p plan.Peer) headgatePeer {
	out := headgatePeer{Theirs: encodeAddr(p.Theirs), Ours: encodeAddr(p.Ours), Ring: p.Ring, Mtu: p.MTU}
	for flag, is := range peerFlags {
		if *is(&p) {
			out.Flags |= flag
		}
	}
	return out
}

func decodePeer(p headgatePeer) plan.Peer {
	out := plan.Peer{Theirs: decodeAddr(p.Theirs), Ours: decodeAddr(p.Ours), Ring: p.Ring, MTU: p.Mtu}
	for flag, is := range peerFlags {
		*is(&out) = p.Flags&flag != 0
	}
	return out
}

// peerWaysMap holds by which next hop a peer is reached, see bpf/carry/way.h.
const peerWaysMap = "peer_ways"

// putPeer writes a peer: what may change of one in use in one store. What was another one before has
// other ways.
func (s *mapSet) putPeer(o plan.PutPeer) {
	at, p := s.peers.at(o.ID), encodePeer(o.Peer)
	was, is := *at, p
	was.Mtu, was.Flags, is.Mtu, is.Flags = 0, 0, 0, 0
	if was != is {
		*at = is
		defer s.newEpoch()
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&at.Mtu)), *(*uint64)(unsafe.Pointer(&p.Mtu)))
}

// readPeers reads the peers, their addresses, and what slots named before.
func (s *mapSet) readPeers(c *plan.Content) error {
	for id := plan.HomeHere; id < s.peers.len; id++ {
		if p := *s.peers.at(id); p != (headgatePeer{}) {
			c.Peers[id] = decodePeer(p)
		}
	}
	var err error
	if c.PeerAddresses, err = s.readPeerAddresses(); err != nil || len(c.Peers) == 0 {
		return err // without peers nobody asks what slots named
	}
	c.Owners = map[uint32]plan.Owners{}
	return walk(s.byName["slot_changes"], func(slot *uint32, change *headgateSlotChange) error {
		c.Owners[*slot] = change.Was
		return nil
	})
}

// readPeerAddresses returns from which addresses peers carry, with the ID of each.
func (s *mapSet) readPeerAddresses() (map[netip.Addr]uint32, error) {
	out := map[netip.Addr]uint32{}
	err := walk(s.byName["peer_addresses"], func(key *headgateIpAddr, id *uint32) error {
		out[decodeAddr(*key)] = *id
		return nil
	})
	return out, err
}

// PeerCounts is what was carried to a peer, and from it.
type PeerCounts struct {
	Carried      uint64 // packets, also those that this node has passed on
	CarriedBytes uint64 // with their outer headers
	CarriedSYN   uint64 // of the packets, those that begin a TCP connection
	CarriedTCP   uint64 // and those within one
	PassedOn     uint64 // of the packets, those that had been carried before
	Received     uint64 // packets that it has carried here
	// SYNNetworks is how many networks (IPv4 /24, IPv6 /64) have clients that began connections since a
	// packet within one was carried. More than 64 are not told apart, nor are some by chance.
	SYNNetworks int
}

// Peers returns the nodes that packets are carried to, by ID.
func (r *Reader) Peers() iter.Seq2[uint32, plan.Peer] { return r.maps.allPeers() }

// FormerPeers returns the nodes that packets were carried to when this process came, by ID, also
// where those programs work on maps of another version. It is for a time before any change.
func (d *Datapath) FormerPeers() iter.Seq2[uint32, plan.Peer] { return d.maps.allPeers() }

func (s *mapSet) allPeers() iter.Seq2[uint32, plan.Peer] {
	return func(yield func(uint32, plan.Peer) bool) {
		for id := plan.FirstPeer; id < s.peers.len; id++ {
			if p := *s.peers.at(id); p != (headgatePeer{}) && !yield(id, decodePeer(p)) {
				return
			}
		}
	}
}

// outsideAt returns the ID of the peer that outer headers to an address go to, if that is a backend outside; else 0.
func (r *Reader) outsideAt(to netip.Addr) uint32 {
	theirs := encodeAddr(to)
	for id := plan.FirstPeer; id < r.maps.peers.len; id++ {
		if p := r.maps.peers.at(id); p.Theirs == theirs && p.Flags&headgatePeerFlagPEER_OUTSIDE != 0 {
			return id
		}
	}
	return 0
}

// CarriesTo says whether this node carries packets to a backend, by its ID.
func (r *Reader) CarriesTo(id uint32) bool {
	home := r.backends.at(id).Home
	return home >= plan.FirstPeer && home < r.maps.peers.len && r.maps.peers.at(home).Flags&headgatePeerFlagPEER_USABLE != 0
}

// backendOf returns the backend that a peer outside is, for packets to an address and port.
func (r *Reader) backendOf(peer uint32, protocol lb.Protocol, to netip.AddrPort) netip.AddrPort {
	for id := range r.backends.len {
		if b := r.backends.at(id); b.Home == peer && b.To.Port == swapPort(to.Port()) && b.To.Protocol == uint8(protocol) {
			if at := decodeAddr(b.To.Addr); at.Is4() == to.Addr().Is4() {
				return netip.AddrPortFrom(at, to.Port())
			}
		}
	}
	return to
}

// PeerAddresses returns from which addresses peers carry, with the ID of each.
func (r *Reader) PeerAddresses() (map[netip.Addr]uint32, error) { return r.maps.readPeerAddresses() }

// PeerCounts returns what was carried to a peer, and from it, by all CPUs.
func (r *Reader) PeerCounts(id uint32) (sum PeerCounts, err error) {
	var all []headgatePeerCounts
	if err := r.maps.byName["peer_counts"].Lookup(id, &all); err != nil {
		return sum, fmt.Errorf("read what was carried to peer %d: %w", id, err)
	}
	var networks uint64
	for _, c := range all {
		networks |= c.SynNetworks
		sum.Carried += c.Carried
		sum.CarriedBytes += c.CarriedBytes
		sum.CarriedSYN += c.CarriedSyn
		sum.CarriedTCP += c.CarriedTcp
		sum.PassedOn += c.PassedOn
		sum.Received += c.Received
	}
	sum.SYNNetworks = bits.OnesCount64(networks)
	return sum, nil
}

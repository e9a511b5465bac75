package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// home is where a backend of a carried frontend runs.
type home struct {
	node string // its name, "" as long as nobody has said it
	peer uint32 // as written: HomeUnknown, HomeHere or the ID of a peer
}

// homeUnwritten is the home of a backend of which it is not known what is written.
const homeUnwritten = ^uint32(0)

// Node is a node that packets are carried to, or this one.
type Node struct {
	Peer
	Addrs []netip.Addr // from which it carries: what comes from them is taken
}

// peers is the nodes that packets are carried to.
type peers struct {
	told    bool              // which nodes there are
	ids     map[string]uint32 // by name of a node
	at      map[string]uint32 // by its addresses
	nodes   map[uint32]Node   // as written
	used    *idPool
	retired map[uint32]Mark // peers that are nobody's home any more
}

func newPeers() *peers {
	return &peers{ids: map[string]uint32{}, nodes: map[uint32]Node{}, used: newIDPool(HomeHere), retired: map[uint32]Mark{}}
}

// size is the number of map entries that peers need: none as long as there is none.
func (p *peers) size() uint32 {
	if len(p.nodes)+len(p.retired) == 0 {
		return 0
	}
	return p.used.size()
}

// homeOf returns where a backend runs as far as that is known: by its node, by an address that is
// one of a node, else what an earlier agent wrote, if it is a node still.
func (p *peers) homeOf(h home) uint32 {
	if h.node == "" && p.isNamed(h.peer) {
		return h.peer
	}
	if id, named := p.ids[h.node]; named {
		return id
	}
	return p.at[h.node]
}

// SetPeers says which nodes there are, by name, and which of them is this one. It costs what
// there are of nodes, and of backends of carried frontends.
func (p *Planner) SetPeers(here string, all map[string]Node) []Op {
	var ops []Op
	was, wasAt := maps.Clone(p.peers.ids), p.peers.at
	maps.DeleteFunc(p.peers.ids, func(name string, _ uint32) bool {
		_, there := all[name]
		return !there
	})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		ops = append(ops, p.peers.put(name, name == here, all[name])...)
	}
	p.peers.at = map[string]uint32{}
	for name, n := range all {
		for _, a := range n.Addrs {
			p.peers.at[a.String()] = p.peers.ids[name]
		}
	}
	if !p.peers.told || !maps.Equal(was, p.peers.ids) || !maps.Equal(wasAt, p.peers.at) {
		p.peers.told = true
		ops = append(ops, p.pool.moveHomes(p.peers)...)
	}
	return append(ops, p.peers.endUnnamed(p.pool.time)...)
}

// ForgetPeers has what Resume returns leave peers as the maps hold them until the next SetPeers.
func (p *Planner) ForgetPeers() { p.peers.told = false }

// put writes a node that is new, or has changed. One with other addresses is another peer: an
// element that is in use stays the same node.
func (p *peers) put(name string, here bool, n Node) (ops []Op) {
	id, known := p.ids[name]
	if !known || !here && !p.nodes[id].isAt(n) {
		delete(p.ids, name)
		id = p.idFor(n, here)
		p.ids[name] = id
	}
	old := p.nodes[id]
	if n.Peer != old.Peer {
		ops = append(ops, PutPeer{ID: id, Peer: n.Peer})
	}
	for _, a := range n.Addrs {
		if !slices.Contains(old.Addrs, a) {
			ops = append(ops, PutPeerAddress{Addr: a, ID: id})
		}
	}
	for _, a := range old.Addrs {
		if !slices.Contains(n.Addrs, a) && p.holder(a, id) {
			ops = append(ops, DeletePeerAddress{Addr: a})
		}
	}
	p.nodes[id] = n
	return ops
}

// isAt says whether an outer header is the same, and the ring.
func (n Node) isAt(o Node) bool {
	return n.Theirs == o.Theirs && n.Ours == o.Ours && n.Ring == o.Ring
}

// idFor returns the ID of a node that has none: what an earlier agent gave it, or a new one.
func (p *peers) idFor(n Node, here bool) uint32 {
	if here {
		return HomeHere
	}
	for id, old := range p.nodes {
		if id != HomeHere && old.isAt(n) && !p.isNamed(id) {
			return id
		}
	}
	return p.used.alloc()
}

func (p *peers) isNamed(id uint32) bool {
	for _, other := range p.ids {
		if other == id {
			return true
		}
	}
	return false
}

// holder says whether no other peer than one carries from an address.
func (p *peers) holder(a netip.Addr, id uint32) bool {
	for other, n := range p.nodes {
		if other != id && slices.Contains(n.Addrs, a) {
			return false
		}
	}
	return true
}

// endUnnamed ends the peers that are no node any more: nothing has them as its home.
func (p *peers) endUnnamed(now Mark) (ops []Op) {
	for _, id := range slices.Sorted(maps.Keys(p.nodes)) {
		if p.isNamed(id) {
			continue
		}
		for _, a := range p.nodes[id].Addrs {
			if p.holder(a, id) {
				ops = append(ops, DeletePeerAddress{Addr: a})
			}
		}
		delete(p.nodes, id)
		p.retired[id] = now
	}
	return ops
}

// sweep clears the peers that ended before a mark.
func (p *peers) sweep(m Mark) (ops []Op) {
	for _, id := range slices.Sorted(maps.Keys(p.retired)) {
		if p.retired[id] <= m {
			ops = append(ops, ClearPeer{ID: id})
			delete(p.retired, id)
			if id != HomeHere {
				p.used.free(id)
			}
		}
	}
	return ops
}

// useHomes says where the members of a carried frontend run, before anything names them. Where
// that is not known what was known stays.
func (p *pool) useHomes(f lb.Frontend, peers *peers, ops *[]Op) {
	if !f.Carried {
		return
	}
	p.putMissing(f.Members, ops)
	for _, b := range f.Members {
		id := p.backends.numberOf(compacted(b))
		was, known := p.homes[id]
		now := was
		if node := f.Homes[b]; node != "" {
			now.node = node
		}
		if peers.told {
			now.peer = peers.homeOf(now)
		}
		if now.peer == homeUnwritten {
			now.peer = HomeUnknown
		}
		if now.peer != was.peer {
			*ops = append(*ops, PutHome{ID: id, Home: now.peer})
		}
		if !known || now != was {
			p.homes[id] = now
		}
	}
}

// moveHomes says where backends run now that nodes have come or gone.
func (p *pool) moveHomes(peers *peers) (ops []Op) {
	for _, id := range slices.Sorted(maps.Keys(p.homes)) {
		h := p.homes[id]
		if now := peers.homeOf(h); now != h.peer {
			ops = append(ops, PutHome{ID: id, Home: now})
			h.peer = now
			p.homes[id] = h
		}
	}
	return ops
}

// adoptHomes takes over what the maps have of peers and homes. Peers get their names with the
// first SetPeers.
func (p *Planner) adoptHomes(c Content) {
	used := map[uint32]bool{HomeHere: true}
	for id, peer := range c.Peers {
		used[id] = true
		n := Node{Peer: peer}
		for a, of := range c.PeerAddresses {
			if of == id {
				n.Addrs = append(n.Addrs, a)
			}
		}
		slices.SortFunc(n.Addrs, netip.Addr.Compare)
		p.peers.nodes[id] = n
	}
	p.peers.used = newIDPool(slices.Sorted(maps.Keys(used))...)
	for id, peer := range c.Homes {
		p.pool.homes[id] = home{peer: peer}
	}
}

package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// A NodePort stands at the unspecified address, but the datapath looks for a
// frontend at the very address of a packet first. So a claim to an address of the
// node competes with the NodePort of the same port, wherever NodePorts answer.

// answers says whether NodePorts answer on an address of the node.
func (k AddressKind) answers() bool { return k&(NodeAddress|LoopbackAddress) != 0 }

// SetNodeAddresses says which addresses are the node's own, and of what kind. Who has frontends there may change by it: see
// TakeDisplaced.
func (p *Planner) SetNodeAddresses(node map[netip.Addr]AddressKind) []Op {
	var ops []Op
	changed := map[netip.Addr]bool{}
	for a, k := range node {
		if p.addresses[a] == nil {
			p.addresses[a] = &address{}
		}
		p.addresses[a].node = k
		changed[a] = k.answers() && !p.node[a].answers()
	}
	for a, k := range p.node {
		changed[a] = changed[a] || k.answers() && !node[a].answers()
	}
	p.node = maps.Clone(node)
	for _, a := range slices.SortedFunc(maps.Keys(p.addresses), netip.Addr.Compare) {
		if node[a] == 0 {
			p.addresses[a].node = 0
		}
		p.writeAddress(a, &ops)
	}
	ops = append(ops, p.trimFormers()...)
	return append(ops, p.decide(p.claimedAt(changed))...)
}

// claimedAt returns the frontends at some addresses that are in force or waited for.
func (p *Planner) claimedAt(addrs map[netip.Addr]bool) (keys []lb.AddrPort) {
	for key := range p.wanting {
		if addrs[key.Addr] {
			keys = append(keys, key)
		}
	}
	used := func(a netip.Addr, is bool) bool { return is && p.addresses[a] != nil && p.addresses[a].others > 0 }
	maps.DeleteFunc(addrs, func(a netip.Addr, is bool) bool { return !used(a, is) })
	if len(addrs) == 0 {
		return keys // the usual case: no need to look at all frontends
	}
	for key := range p.frontends {
		if addrs[key.Addr] {
			keys = append(keys, key)
		}
	}
	return keys
}

// beside returns the addresses of the node with the port of a frontend, if that is a
// NodePort.
func (p *Planner) beside(key lb.AddrPort) (keys []lb.AddrPort) {
	if !key.Addr.IsUnspecified() {
		return nil
	}
	for a, k := range p.node {
		if k.answers() && a.Is4() == key.Addr.Is4() {
			keys = append(keys, lb.AddrPort{Addr: a, Port: key.Port, Protocol: key.Protocol})
		}
	}
	return keys
}

// nodePortAt returns the NodePort that answers at an address of the node unless it
// has a frontend of its own, nil for none. One of a Service that is refused keeps only what nobody else wants.
func (p *Planner) nodePortAt(key lb.AddrPort) *entry {
	e := p.nodePortBelow(key)
	if e == nil || p.refused(e.claim.Service) {
		return nil
	}
	return e
}

// nodePortBelow returns the NodePort in force of the port of an address of the node, nil for none.
func (p *Planner) nodePortBelow(key lb.AddrPort) *entry {
	if !p.node[key.Addr].answers() {
		return nil
	}
	if key.Addr.Is4() {
		key.Addr = netip.IPv4Unspecified()
	} else {
		key.Addr = netip.IPv6Unspecified()
	}
	return p.frontends[key]
}

// yields says whether a claim has to leave an address of the node to the NodePort of
// another Service.
func (p *Planner) yields(claim lb.Claim, key lb.AddrPort) bool {
	e := p.nodePortAt(key)
	return e != nil && e.claim.Service != claim.Service && e.keeps(claim)
}

// decide takes frontends from those that have to leave them to a NodePort, and has
// the Services Set again that wait for one and need not leave it to a NodePort. What was
// adopted takes nothing until its owner has been Set: it may be gone, or refused.
func (p *Planner) decide(keys []lb.AddrPort) []Op {
	if len(keys) == 0 {
		return nil
	}
	c := p.begin(lb.ServiceName{})
	slices.SortFunc(keys, lb.AddrPort.Compare)
	for _, key := range slices.Compact(keys) {
		for name, f := range p.wanting[key] {
			if !p.yields(claimOf(name, f), key) {
				p.displaced[name] = true
			}
		}
		if e := p.frontends[key]; e != nil && !p.isToStay(e.claim.Service) && p.yields(e.claim, key) && !p.nodePortAt(key).adopted {
			p.displace(key, e)
			c.remove(key)
		}
	}
	c.endRanges()
	return c.ops
}

// isToStay says whether a Service keeps what it has.
func (p *Planner) isToStay(name lb.ServiceName) bool { return p.stays != nil && p.stays(name) }

// lostNodePorts returns where a ClusterIP is an address of the node, and has what
// would be a NodePort's.
func (p *Planner) lostNodePorts() (conflicts []Conflict) {
	shared := map[netip.Addr]bool{}
	for a, k := range p.node {
		if k.answers() && p.addresses[a].clusterIPs > 0 {
			shared[a] = true
		}
	}
	if len(shared) == 0 {
		return nil // the usual case
	}
	for _, key := range slices.SortedFunc(maps.Keys(p.frontends), lb.AddrPort.Compare) {
		n, has := p.nodePortAt(key), p.frontends[key].claim
		if shared[key.Addr] && n != nil && !p.refused(has.Service) && n.claim.Service != has.Service && has.Compare(n.claim) < 0 {
			conflicts = append(conflicts, conflict(key, has, n.claim))
		}
	}
	return conflicts
}

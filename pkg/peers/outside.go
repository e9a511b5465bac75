package peers

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// A backend outside is its own home: no agent answers there, and nothing is asked. What is known of
// it is how it is reached.

// home is a home of what is carried of a Service.
type home struct {
	name string // of a node, or the address of a backend that has none
	// Ports that clients and the backend have, where they differ, else 0: a backend outside gets
	// packets as they came, so that these are not carried there.
	port, target uint16
}

func (h home) compare(o home) int {
	return cmp.Or(cmp.Compare(h.name, o.name), cmp.Compare(h.port, o.port), cmp.Compare(h.target, o.target))
}

// homesOf returns the homes of what is carried of a Service, sorted.
func homesOf(frontends []lb.Frontend) (homes []home) {
	for _, f := range frontends {
		if !f.Carried {
			continue
		}
		for b, name := range f.Homes {
			h := home{name: name}
			if name == b.Addr.String() && b.Port != f.AddrPort.Port {
				h.port, h.target = f.AddrPort.Port, b.Port
			}
			homes = append(homes, h)
		}
	}
	slices.SortFunc(homes, home.compare)
	return slices.Compact(homes)
}

// wanted returns the homes of all Services, by name of the peer, and notes which peer each home is:
// that with its name, or the node with the address that its name is.
func (p *Prober) wanted() map[string]bool {
	at := map[string]string{}
	for name, n := range p.nodes {
		for _, a := range addressesOf(n) {
			at[a.String()] = name
		}
	}
	all := map[string]bool{}
	p.names = map[string]string{}
	for _, homes := range p.homes {
		for _, h := range homes {
			name := h.name
			if node, is := at[name]; is && !p.isNodeName(name) {
				name = node
			}
			p.names[h.name] = name
			all[name] = true
		}
	}
	return all
}

func (p *Prober) isNodeName(name string) bool {
	_, is := p.nodes[name]
	return is
}

// settleOutside puts the peers that are backends outside in line with the homes that are wanted.
func (p *Prober) settleOutside(wanted map[string]bool) {
	for name := range wanted {
		theirs, err := netip.ParseAddr(name)
		if err != nil || p.isNodeName(name) {
			continue
		}
		if a := p.peers[name]; a == nil || !a.Outside {
			p.findWay(name, theirs)
		}
	}
	maps.DeleteFunc(p.peers, func(name string, a *asked) bool {
		return a.Outside && (!wanted[name] || p.isNodeName(name))
	})
}

// findWay makes a peer of a backend outside, none of one that no route has led to. One whose route
// is gone stays as it was: with the route come packets, before anyone has looked for it again.
func (p *Prober) findWay(name string, theirs netip.Addr) {
	ours := p.cfg.Route(theirs)
	if !ours.IsValid() {
		if a := p.peers[name]; a != nil && !a.Outside {
			delete(p.peers, name)
		}
		return
	}
	node := plan.Peer{Theirs: theirs, Ours: ours, Ring: plan.RingOf(name), MTU: p.cfg.MTU(ours), Usable: true, Returns: true, Outside: true}
	p.peers[name] = &asked{peer: newPeer(node, node.MTU), Node: plan.Node{Peer: node}}
}

// findWays looks again how backends outside are reached, from time to time: nothing tells when
// routes change.
func (p *Prober) findWays() {
	for _, name := range p.names {
		theirs, err := netip.ParseAddr(name)
		if err != nil || p.isNodeName(name) {
			continue
		}
		before := p.peers[name]
		if p.findWay(name, theirs); (before == nil) != (p.peers[name] == nil) {
			p.stale = true
		}
	}
}

// lackOutside says why what begins is not carried to a backend outside, "" where it is.
func lackOutside(h home, at netip.Addr, a *asked) (reason, remedy string) {
	switch {
	case a == nil:
		return fmt.Sprintf("nothing is carried to the backend %s: no route leads there", at),
			"add a route, or a gateway"
	case h.target != 0:
		return fmt.Sprintf("the backend %s gets connections to port %d by SNAT: it would get them as they came, and listens on port %d", at, h.port, h.target),
			"have backends listen on the port of the Service, and write that as targetPort and in the EndpointSlice; or give the endpoint a nodeName, and the node an agent"
	default:
		return "", ""
	}
}

// RouteTo returns the address that this node reaches another from, the zero Addr where no route
// leads there. Nothing is sent.
func RouteTo(theirs netip.Addr) netip.Addr {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(theirs, Port)))
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// Resolve has the kernel look for the next hop from an address of this node to another: it sends a byte
// that means nothing. No datapath looks for one.
func Resolve(ours, theirs netip.Addr) {
	from, to := netip.AddrPortFrom(ours, 0), netip.AddrPortFrom(theirs, Port)
	if conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to)); err == nil {
		_, _ = conn.Write([]byte{0})
		_ = conn.Close()
	}
}

package traffic

import "net/netip"

// way is a route of a machine: a destination and the next machine towards it.
type way struct {
	to     netip.Prefix
	device string
	via    netip.Addr // an address of the next machine, or its link-local one
	from   netip.Addr // what the machine calls itself on this way
}

// linkLocal are the addresses of the ends A and B of every link.
var linkLocal = [2]netip.Addr{netip.MustParseAddr("fe80::a"), netip.MustParseAddr("fe80::b")}

// routes returns the ways of a machine to all others.
func (s TopologySpec) routes(from string) []way {
	var ways []way
	own := s.machine(from)
	for _, to := range s.Machines {
		if to.Name == from {
			continue
		}
		if link, found := s.firstLink(from, to); found {
			ways = append(ways, s.through(link, own, to.prefixes())...)
		}
	}
	for _, l := range s.Links {
		if next, joined := l.other(from); joined && next == own.Gateway {
			ways = append(ways, s.through(l, own, everything)...)
		}
	}
	return ways
}

// everything is all addresses.
var everything = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// through returns the ways of a machine to prefixes by one of its links.
func (s TopologySpec) through(link Link, own Machine, prefixes []netip.Prefix) (ways []way) {
	next, _ := link.other(own.Name)
	for _, p := range prefixes {
		w := way{to: p, device: link.Device(next), via: link.LinkLocal(next), from: sameFamily(own.Addrs, p.Addr())}
		if p.Addr().Is4() {
			w.via = sameFamily(s.machine(next).Addrs, p.Addr())
		}
		ways = append(ways, w)
	}
	return ways
}

// prefixes returns all that a machine is reached by.
func (m Machine) prefixes() []netip.Prefix {
	var all []netip.Prefix
	for _, a := range m.Addrs {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return append(all, m.Prefixes...)
}

// firstLink returns the link of a machine that begins the shortest way to
// another one, by a search from there in all directions.
func (s TopologySpec) firstLink(from string, to Machine) (Link, bool) {
	tunnels := to.Node != "" // what goes to a node goes below the tunnels, for they do
	reached := map[string]bool{to.Name: true}
	for edge := []string{to.Name}; len(edge) > 0; {
		var next []string
		for _, at := range edge {
			for _, l := range s.Links {
				other, joined := l.other(at)
				if !joined || l.VXLAN != 0 && !tunnels || reached[other] {
					continue
				}
				if other == from {
					return l, true
				}
				reached[other] = true
				if s.machine(other).Forwards {
					next = append(next, other)
				}
			}
		}
		edge = next
	}
	return Link{}, false
}

// LinkLocal is the address of a machine's end of the link. Of IPv6 a device
// answers for its own addresses only.
func (l Link) LinkLocal(machine string) netip.Addr {
	if l.A == machine {
		return linkLocal[0]
	}
	return linkLocal[1]
}

// other returns the other end of a link of a machine.
func (l Link) other(machine string) (string, bool) {
	switch machine {
	case l.A:
		return l.B, true
	case l.B:
		return l.A, true
	}
	return "", false
}

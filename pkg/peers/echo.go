package peers

import (
	"net/netip"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// returning is the addresses of carried Services, of their load balancers and external ones: clients
// elsewhere get answers from these.
func returning(frontends []lb.Frontend) (out []netip.Addr) {
	for _, f := range frontends {
		if f.Carried && (f.Kind == lb.LoadBalancerIP || f.Kind == lb.ExternalIP) {
			out = append(out, f.Addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// settleServices says of each peer from which address of a Service with a home there it is to
// answer, too: the one from before while there is one, else the lowest.
func (p *Prober) settleServices() {
	next := map[string]netip.Addr{}
	for service, homes := range p.homes {
		for _, h := range homes {
			name := p.names[h.name]
			if a := p.peers[name]; a != nil && !a.Outside {
				next[name] = a.betterOf(next[name], p.returning[service])
			}
		}
	}
	for name, a := range p.peers {
		a.path.wants(next[name])
	}
}

// betterOf returns the address that is asked for, of one, the zero Addr for none, and others.
func (a *asked) betterOf(best netip.Addr, others []netip.Addr) netip.Addr {
	for _, s := range others {
		if s.Is4() != a.Ours.Is4() || best == a.path.service && best.IsValid() {
			continue
		}
		if !best.IsValid() || s == a.path.service || s.Less(best) {
			best = s
		}
	}
	return best
}

package peers

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// askPath asks the datapath of a peer what it is time for.
func (p *Prober) askPath(a *asked, now time.Time) {
	if !a.echoes {
		return
	}
	for _, what := range a.path.tick(now, a.suspects, rand.Uint64()) {
		from := a.Theirs
		if what == fromService {
			from = a.path.service
		}
		question := plan.Echo{
			Peer: a.Theirs, From: netip.AddrPortFrom(from, p.cfg.Port), To: netip.AddrPortFrom(a.Ours, p.cfg.Port),
			Payload: message{echo, a.path.nonce | uint64(what), p.digest()}.encode(), Bytes: what,
		}
		if !p.cfg.Ask(question) {
			a.path.wasNotSent()
			return
		}
	}
}

// hasComeBack takes what the datapath of a peer has sent back from an address.
func (p *Prober) hasComeBack(nonce uint64, from netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.peers {
		if a.path.hasComeBack(nonce, from, a.Theirs) {
			return
		}
	}
}

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
// answer, too: the one from before while there is one, else the lowest. Of those of this node the
// stack would take no answer.
func (p *Prober) settleServices() {
	local := p.cfg.Local()
	next := map[string]netip.Addr{}
	for service, homes := range p.homes {
		for _, h := range homes {
			name := p.names[h.name]
			if a := p.peers[name]; a != nil && !a.Outside {
				next[name] = a.betterOf(next[name], p.returning[service], local)
			}
		}
	}
	for name, a := range p.peers {
		a.path.wants(next[name])
	}
}

// betterOf returns the address that is asked for, of one, the zero Addr for none, and others.
func (a *asked) betterOf(best netip.Addr, others, local []netip.Addr) netip.Addr {
	for _, s := range others {
		if s.Is4() != a.Ours.Is4() || best == a.path.service && best.IsValid() || slices.Contains(local, s) {
			continue
		}
		if !best.IsValid() || s == a.path.service || s.Less(best) {
			best = s
		}
	}
	return best
}

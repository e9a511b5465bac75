package peers

import "time"

// askedBy is when each peer that carries here has asked, and so said how it carries.
const askedBy = 3 * calm

// digest is that of how this node carries.
func (p *Prober) digest() Digest { return DigestOf(p.cfg.Key, p.cfg.UDP) }

// digestFor returns the digest that answers a question with one: that, if this node takes what its
// sender carries, else none. A sender without the key does not get what proves it.
func (p *Prober) digestFor(theirs Digest) Digest {
	if theirs == DigestOf(p.cfg.Key, false) || theirs == DigestOf(p.cfg.Key, true) {
		return theirs
	}
	return Digest{}
}

// takesIPIP says whether IP in IP from a peer is taken off. It has no proof, so a node that carries
// over UDP takes it from those alone that carry so, as while that is changed node by node.
func (p *Prober) takesIPIP(a *asked, now time.Time) bool {
	hasAsked := a.asks != Digest{}
	return !p.cfg.UDP || a.asks == DigestOf(p.cfg.Key, false) || !hasAsked && now.Before(a.found.Add(askedBy))
}

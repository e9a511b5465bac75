// Package peers finds out which other nodes packets can be carried to: which of them carry as this
// node does, and whether clients get the answers. Datapaths ask each other by echoes, which go as what
// is carried does; what these do not tell the counters of the datapath do.
//
// What becomes of what was asked, and what was not answered, is decided by values alone: time
// goes in as an argument.
package peers

import (
	"cmp"
	"time"

	"github.com/headgate/headgate/pkg/plan"
)

// Pace of the questions. A home that dies while clients begin connections is found within three
// questions of one tick each, and the tick in which its silence shows: 1.2 s.
const (
	Tick      = 300 * time.Millisecond // how often a peer is looked at
	calm      = 5 * time.Second        // between looks at what nothing tells of: routes and filters
	searching = time.Second            // between questions to one that does not answer
	missing   = 3                      // questions in a row without an answer: it is not there
	// deadAgent is for how long a datapath answers by the word of its former agent.
	deadAgent = 10 * time.Minute
	// Clients that get no answers begin connections and do nothing else. Where echoes say that answers
	// come through, they have to be more, and of several networks: anybody may send SYNs.
	silentSYNs     = 20
	provenSYNs     = 10 * silentSYNs
	provenNetworks = 3
	silentFor      = 10 * time.Second
	returnAfter    = time.Minute // no answers: then it is tried again, later each time
	returnMost     = 24 * time.Hour
)

// Counts are what was carried to a peer since there are counters.
type Counts struct {
	SYN uint64 // packets that begin a TCP connection
	TCP uint64 // and those within one
	// Networks is of how many networks clients are that began connections since a packet within one.
	Networks int
}

// Verdict is what is known of a peer.
type Verdict struct {
	Carries bool // it takes what is carried, as this node does
	Returns bool // clients get its answers, as far as is known
	Silent  bool // it answers no questions: it is as good as dead
	Reason  string
	// Answered is when it answered last, the zero time for never.
	Answered time.Time
}

// Usable says whether what begins is carried to the peer.
func (v Verdict) Usable() bool { return v.Carries && v.Returns }

// peer is another node.
type peer struct {
	path     path
	returns  returns
	answers  bool   // clients get its answers, by what they send
	before   Counts // at the last tick
	suspects bool   // connections were begun, and nothing else was carried since
}

// newPeer returns a peer of which nothing is known but what an earlier agent found out, and how long
// packets are that leave this node.
func newPeer(former plan.Peer, most uint32) *peer {
	var known uint32
	if former.Usable {
		known = cmp.Or(former.MTU, most)
	}
	return &peer{path: newPath(most, known), answers: true}
}

// tick says what was carried until now, and returns what it is time to ask.
func (p *peer) tick(now time.Time, c Counts, nonce uint64) []plan.Echo {
	if p.path.judge(now); !p.path.isInDoubt() {
		p.suspects = false
	}
	if c.TCP < p.before.TCP || c.SYN < p.before.SYN {
		p.before = Counts{} // counters are new
	}
	switch {
	case c.TCP > p.before.TCP:
		p.suspects = false
	case c.SYN > p.before.SYN:
		p.suspects = true
	}
	more := Counts{c.SYN - p.before.SYN, c.TCP - p.before.TCP, c.Networks}
	p.answers = p.returns.tick(now, more, p.path.isProven())
	p.before = c
	return p.path.next(now, p.suspects, nonce)
}

// said is what is known, with the reason why nothing is carried.
func (p *peer) said() Verdict {
	v := Verdict{Carries: true, Returns: true, Silent: p.path.isSilent(), Answered: p.path.answered}
	if v.Reason = p.path.failure(); v.Reason != "" {
		v.Carries = false
	} else if refusal := p.path.refusal(); refusal != "" {
		v.Returns, v.Reason = false, "clients get no answers: "+refusal
	} else if !p.answers {
		v.Returns, v.Reason = false, "clients get no answers: the network drops what a node sends from the Service's address, or what is carried; it is tried again "+p.returns.until.UTC().Format(time.RFC3339)
	}
	return v
}

// returns says whether clients get answers, by what they send.
type returns struct {
	syns  uint64    // since something else was carried
	since time.Time // of the first of them
	until time.Time // no answers: nothing is carried before
	wait  time.Duration
}

// tick notes what was carried since the last one, and says whether there are answers. Echoes may
// say so, too.
func (r *returns) tick(now time.Time, more Counts, proven bool) bool {
	if more.TCP > 0 {
		r.syns, r.wait = 0, 0
	} else if more.SYN > 0 {
		if r.syns == 0 {
			r.since = now
		}
		r.syns += more.SYN
	}
	silent := r.syns >= silentSYNs
	if proven {
		silent = r.syns >= provenSYNs && more.Networks >= provenNetworks
	}
	if silent && now.Sub(r.since) >= silentFor && !now.Before(r.until) {
		r.wait = min(max(2*r.wait, returnAfter), returnMost)
		r.syns, r.until = 0, now.Add(r.wait)
	}
	return !now.Before(r.until)
}

// Package peers finds out which other nodes packets can be carried to: who of them carries as
// this node does, and whether clients get the answers. Agents ask each other by datagrams, and
// datapaths by echoes, which go as what is carried does; what these do not tell the counters of the
// datapath do.
//
// What becomes of what was asked, and what was not answered, is decided by values alone: time
// goes in as an argument.
package peers

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/pkg/plan"
)

// Pace of the questions. A home that dies while clients begin connections is found within three
// questions of one tick each, and the tick in which its silence shows: 1.2 s.
const (
	Tick      = 300 * time.Millisecond // how often a peer is looked at
	calm      = 5 * time.Second        // between questions to one that answers
	searching = time.Second            // to one that does not
	missing   = 3                      // questions in a row without an answer: it is not there
	// deadAgent is for how long a node carries by the word of its former agent. Its datapath
	// goes on without one, while the node says that nobody listens: as often as the kernel lets
	// it, which is once a second at most. One that is silent for deadNode has died, too.
	deadAgent = 10 * time.Minute
	deadNode  = 10 * time.Second
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
	Silent  bool // nothing says that the node is there: it is as good as dead
	Reason  string
	// Answered is when it answered last, the zero time for never.
	Answered time.Time
}

// Usable says whether what begins is carried to the peer.
func (v Verdict) Usable() bool { return v.Carries && v.Returns }

// peer is another node.
type peer struct {
	verdict  Verdict
	asked    time.Time // when it was asked last
	silent   int       // questions since its last answer
	differs  bool      // it answered last that it carries otherwise
	refused  time.Time // since when nobody listens there, though the node is there
	lives    time.Time // when it said so last
	returns  returns
	before   Counts // at the last tick
	suspects bool   // connections were begun, and nothing else was carried since
	path     path
	echoes   bool // its datapath sends back what it is asked, see path
	plain    int  // answers in a row that did not say so
}

// noAnswer is the reason at first.
const noAnswer = "has not answered yet"

// newPeer returns a peer of which nothing is known but what an earlier agent found out, and how long
// packets are that leave this node.
func newPeer(former plan.Peer, most uint32) *peer {
	p := &peer{verdict: Verdict{Carries: former.Usable, Returns: true, Reason: noAnswer}, path: newPath(most, 0)}
	if former.Usable {
		p.verdict.Reason, p.path = "", newPath(most, former.MTU)
	}
	return p
}

// tick says what was carried until now, and returns whether it is time to ask.
func (p *peer) tick(now time.Time, c Counts) (ask bool) {
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
	p.verdict.Returns = p.returns.tick(now, more, p.echoes && p.path.isProven())
	p.before = c
	p.judgeSilence(now)
	return p.isDue(now)
}

func (p *peer) isDue(now time.Time) bool {
	switch {
	case p.silent > 0 && p.silent < missing, p.suspects && p.verdict.Carries, p.echoes && p.path.isInDoubt() && !p.path.hasFailed():
		return true
	case p.verdict.Carries && p.refused.IsZero():
		return !now.Before(p.asked.Add(calm))
	default:
		return !now.Before(p.asked.Add(searching))
	}
}

// judgeSilence gives a peer up that does not answer.
func (p *peer) judgeSilence(now time.Time) {
	refuses := !p.refused.IsZero()
	p.verdict.Silent = p.silent >= missing && (!refuses || now.Sub(p.lives) >= deadNode)
	switch {
	case refuses && now.Sub(p.refused) >= deadAgent:
		p.fail("no agent has been there for %s", deadAgent)
	case p.verdict.Silent:
		p.fail("does not answer: is UDP port %d open between nodes, and does an agent with --forwarding dsr or marked run there?", Port)
	}
}

// hasAsked notes that a question has gone.
func (p *peer) hasAsked(now time.Time) { p.asked, p.silent = now, p.silent+1 }

// hasAnswered notes an answer of a kind: echoes alone, answer alone, or of earlier versions one after
// the other, of which one may get lost.
func (p *peer) hasAnswered(now time.Time, k kind, theirs, ours Digest) {
	p.verdict.Answered, p.verdict.Silent = now, false
	p.silent, p.refused, p.suspects = 0, time.Time{}, false
	if k == echoes {
		if !p.echoes && p.verdict.Carries {
			p.path.unknown = false // it carried without: it goes on until something is lost
		}
		p.echoes, p.plain = true, 0
	} else if p.plain++; p.plain > missing {
		p.echoes = false // it echoes no more
	}
	if p.differs = theirs != ours; p.differs {
		p.fail("hashes by another key, or is of a version that carries otherwise: give all nodes the same --hash-key-file, and one version")
		return
	}
	p.verdict.Carries, p.verdict.Reason = true, ""
}

// hasRefused notes that nobody listens there. The node lives, and its datapath carries on.
func (p *peer) hasRefused(now time.Time) {
	p.silent, p.lives = 0, now
	if p.refused.IsZero() {
		p.refused = now
	}
	if !p.verdict.Carries {
		p.verdict.Reason = "no agent runs there with --forwarding dsr or marked"
	}
}

func (p *peer) fail(reason string, args ...any) {
	p.verdict.Carries, p.verdict.Reason = false, fmt.Sprintf(reason, args...)
}

// said is the verdict with the reason why nothing is carried, whoever knows it.
func (p *peer) said() Verdict {
	v := p.verdict
	if p.echoes && p.plain <= 1 && v.Carries { // else its last answer says that it does not echo any more
		if failure, refusal := p.path.failure(), p.path.refusal(); failure != "" {
			v.Carries, v.Reason = false, failure
		} else if refusal != "" {
			v.Returns, v.Reason = false, "clients get no answers: "+refusal
			return v
		}
	}
	if v.Carries && !v.Returns {
		v.Reason = "clients get no answers: the network drops what a node sends from the Service's address, or what is carried; it is tried again " + p.returns.until.UTC().Format(time.RFC3339)
	}
	return v
}

// mtu is how many bytes the longest packet has that gets there, as far as is known.
func (p *peer) mtu() uint32 {
	if !p.echoes {
		return p.path.most
	}
	return p.path.mtu
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

package peers

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/plan"
)

// Pace of the echoes, and what follows from those that do not come back. With the tick in which that
// shows, a path that drops what is carried is found within 3.2 s while nothing is sent there, and
// within 1.2 s while clients begin connections in vain.
const (
	pathCalm   = 2 * time.Second  // between rounds of questions where all come back
	raiseAfter = 30 * time.Second // all lengths are tried again: the path may take longer packets now
	// missingReturns is how many rounds in a row have no answer from the address of a Service, before
	// the node may not send from there: a peer may hear later than this node that there is a Service.
	missingReturns = 7
)

const (
	longest  = 1<<16 - 1 // bytes of any packet
	leastMTU = 1280      // bytes that each path takes, with the outer header (RFC 8200, 5)
)

// usualMTUs are the lengths that paths have: of links, less what tunnels take.
var usualMTUs = [...]uint32{8950, 8900, 8000, 4000, 2000, 1500, 1492, 1480, 1460, 1450, 1440, 1420, 1400, 1380, 1350, 1320, 1300, leastMTU}

// path is what is known of the way to a peer, by echoes (RFC 8899 calls the lengths of them PLPMTU):
// the datapath of the peer sends them back, and they come there as what is carried.
type path struct {
	most    uint32     // bytes of a packet that leaves this node: the MTU of its device
	mtu     uint32     // bytes of the longest packet that gets there, as far as is known
	service netip.Addr // from which answers are to come, too; the zero Addr for none

	// Rounds in a row of which nothing came back, of which nothing of mtu bytes did, and of which nothing
	// did from the address of the Service.
	lost, short, unreturned int

	differs  bool      // the peer carried otherwise when it answered last
	unknown  bool      // nothing has come back so far
	answered time.Time // when something did last; the zero time for never
	asked    time.Time // when a round began last
	searched time.Time // when one had all lengths
	nonce    uint64    // of the questions
	bytes    []uint32  // of each question with its outer header, by its number; 0: as few as it has
	back     uint64    // what came back of the questions, a bit for each number
	unlike   bool      // some of it from a peer that carries otherwise
	waits    bool      // for what comes back
}

// newPath returns the path to a peer of which nothing is known, or what an earlier agent has found
// out: then it goes on as it was.
func newPath(most, known uint32) path {
	p := path{mtu: known}
	if known == 0 {
		p = path{mtu: longest, unknown: true, short: missing - 1}
	}
	p.limit(most)
	return p
}

// limit says how long packets are that leave this node.
func (p *path) limit(most uint32) {
	p.most = min(most, longest)
	p.mtu = min(p.mtu, p.most)
}

// wants says from which address answers are to come.
func (p *path) wants(service netip.Addr) {
	if service != p.service {
		p.service, p.unreturned = service, 0
		p.back &^= 1 << plan.EchoOfService
	}
}

// next returns the questions that it is time for. Clients that begin connections and do nothing else
// have it ask at once.
func (p *path) next(now time.Time, suspects bool, nonce uint64) (ask []plan.Echo) {
	if !p.isDue(now, suspects) {
		return nil
	}
	// Else what comes late is of use.
	if !p.isInDoubt() || p.nonce == 0 || len(p.bytes) > int(plan.MostEchoes/2) {
		p.nonce, p.back, p.unlike, p.bytes = max(nonce, 1), 0, false, []uint32{0, plan.EchoOfService: 0}
	}
	p.asked, p.waits = now, true
	ask = append(ask, p.question(0), p.ofLength(p.mtu))
	if p.service.IsValid() {
		ask = append(ask, p.question(plan.EchoOfService))
	}
	if p.short == 0 && (p.mtu == p.most || now.Before(p.searched.Add(raiseAfter))) {
		return ask
	}
	p.searched = now
	for _, bytes := range append(usualMTUs[:], p.most) {
		if bytes <= p.most && bytes != p.mtu {
			ask = append(ask, p.ofLength(bytes))
		}
	}
	return ask
}

// question returns the question of a number, which the round has.
func (p *path) question(number uint32) plan.Echo {
	return plan.Echo{Nonce: p.nonce, Question: number, Service: p.service, Bytes: p.bytes[number]}
}

// ofLength returns the question of so many bytes, with a number of its own.
func (p *path) ofLength(bytes uint32) plan.Echo {
	number := slices.Index(p.bytes, bytes)
	if number < 0 {
		number, p.bytes = len(p.bytes), append(p.bytes, bytes)
	}
	return p.question(uint32(number))
}

// isInDoubt says whether something did not come back.
func (p *path) isInDoubt() bool { return p.lost+p.short+p.unreturned > 0 }

// hasFailed says whether it has been in doubt for so long that it is not any more.
func (p *path) hasFailed() bool {
	return p.differs || p.lost >= missing || p.short >= missing || p.unreturned >= missingReturns
}

// isSilent says whether nothing comes back.
func (p *path) isSilent() bool { return p.lost >= missing }

// isProven says whether answers come from the address of a Service. One that does not come says
// nothing: within some rounds the path has failed, or it has come.
func (p *path) isProven() bool { return p.service.IsValid() && !p.hasFailed() }

func (p *path) isDue(now time.Time, suspects bool) bool {
	switch {
	case (suspects || p.isInDoubt()) && !p.hasFailed():
		return true
	case p.isInDoubt(), p.hasFailed():
		return !now.Before(p.asked.Add(searching))
	default:
		return !now.Before(p.asked.Add(pathCalm))
	}
}

// hasComeBack notes what came back of the round.
func (p *path) hasComeBack(e plan.Echoes) {
	p.back, p.unlike = p.back|e.Questions, p.unlike || e.Unlike
}

// wasNotSent notes that the questions of this tick were not sent: they tell nothing.
func (p *path) wasNotSent() { p.waits = false }

// judge takes into account what has come back of the last round.
func (p *path) judge(now time.Time) {
	if !p.waits {
		return
	}
	p.waits = false
	if p.back == 0 {
		p.lost++
		return
	}
	p.answered, p.differs, p.unlike = now, p.unlike, false
	var best uint32
	for number, bytes := range p.bytes {
		if p.back&(1<<number) != 0 && bytes >= leastMTU {
			best = max(best, bytes)
		}
	}
	p.lost, p.unknown = 0, false
	p.short++
	if best >= p.mtu || best > 0 && p.short >= missing {
		p.mtu, p.short = best, 0
	}
	p.unreturned++
	if !p.service.IsValid() || p.back&(1<<plan.EchoOfService) != 0 {
		p.unreturned = 0
	}
	if p.isInDoubt() {
		p.back = 0 // the next round has to have them, too
	}
}

// failure says why nothing gets there, "" where it does.
func (p *path) failure() string {
	switch {
	case p.isSilent():
		return "does not answer: run an agent of this version there, with --forwarding dsr or marked and the same keys; let UDP port 6635 pass between nodes; docs/dsr.md#a-peer-does-not-answer has all reasons"
	case p.differs:
		return "hashes by another key, or is of a version that carries otherwise: give all nodes the same --hash-key-file, and one version"
	case p.short >= missing:
		return fmt.Sprintf("the network drops what is carried and has %d bytes with its outer header, the least that is of use", leastMTU)
	case p.unknown:
		return "has not answered yet"
	default:
		return ""
	}
}

// refusal says why clients get no answers, "" where they do, as far as echoes tell.
func (p *path) refusal() string {
	if p.unreturned < missingReturns {
		return ""
	}
	return fmt.Sprintf("the network drops what the node sends from %s, the address of a Service: let UDP port 6635 pass from there to nodes", p.service)
}

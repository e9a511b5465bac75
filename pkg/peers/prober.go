package peers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// Config is what a Prober needs.
type Config struct {
	Here string // name of this node
	// IPv6 says that outer headers are of IPv6 where two nodes have both families.
	IPv6 bool
	// MTU returns the longest packet that leaves by the device with an address, in bytes.
	MTU func(netip.Addr) uint32
	// Route returns the address from which this node reaches another, the zero Addr for none.
	Route func(netip.Addr) netip.Addr
	// Filtered returns the device with an address that drops what is carried there, "" for none.
	Filtered func(netip.Addr) string
	// Counts returns what was carried to each peer, by its address.
	Counts func() map[netip.Addr]Counts
	// Former returns the peers that an earlier agent has found, by their addresses.
	Former func() map[netip.Addr]plan.Peer
	// Answer has the datapath of this node answer questions for a time; 0 stops it.
	Answer func(time.Duration)
	// Device returns the device by which packets to an address leave, 0 without a route.
	Device func(netip.Addr) uint32
	// Ask has it ask for an echo; false if the peer is not in force.
	Ask func(plan.Echo) bool
	// Resolve has the kernel look for the next hop from an address of this node to a peer.
	Resolve func(ours, theirs netip.Addr)
	// TakeEchoes returns what came back of the round to a peer since the last call.
	TakeEchoes func(theirs, ours netip.Addr) plan.Echoes
	// Notify is told which nodes there are, whenever that or what is known of them changes.
	Notify func(here string, all map[string]plan.Node)
	// Report is told what is wrong with homes of what is carried.
	Report func([]Status)
}

// precision is how exactly it is said when a peer answered last: each other time is news.
const precision = 30 * time.Second

// Status is what is known of a node that carries, or should.
type Status struct {
	Node    string
	Theirs  netip.Addr
	Verdict Verdict
}

// Prober asks the homes of carried backends. Its methods but Run do not wait.
type Prober struct {
	cfg  Config
	wake chan struct{}

	telling sync.Mutex // what is told first is older

	mu    sync.Mutex
	nodes map[string]lb.Node
	homes map[lb.ServiceName][]home // of what is carried of each Service
	// returning is from which addresses homes are to answer, of each Service.
	returning map[lb.ServiceName][]netip.Addr
	names     map[string]string // of peers, by names of homes
	peers     map[string]*asked
	deaf      deafness
	said      map[string]plan.Node
	// reported is what Report was told last; stale says that homes have changed since.
	reported []Status
	stale    bool
	ready    bool
	looked   time.Time // when it was looked how backends outside are reached, and what filters
}

// deafness is why questions are not answered, and what helps; empty where they are.
type deafness struct{ reason, remedy string }

// asked is a peer, with what Notify is told of it.
type asked struct {
	*peer
	plan.Node
	isHome bool // of what is carried, and a node: one outside is not asked
}

// New returns a prober that knows no node.
func New(cfg Config) *Prober {
	return &Prober{cfg: cfg, wake: make(chan struct{}, 1), nodes: map[string]lb.Node{}, homes: map[lb.ServiceName][]home{}, returning: map[lb.ServiceName][]netip.Addr{}, peers: map[string]*asked{}}
}

// SetNodes says what some Nodes are, nil for one that is gone.
func (p *Prober) SetNodes(nodes map[string]*lb.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, n := range nodes {
		if name == p.cfg.Here {
			p.looked = time.Time{}
		}
		if n == nil {
			delete(p.nodes, name)
		} else {
			p.nodes[name] = *n
		}
	}
	if len(nodes) > 0 {
		p.changed()
	}
}

// SetFrontends says what a Service is now, nil for gone.
func (p *Prober) SetFrontends(name lb.ServiceName, frontends []lb.Frontend) {
	homes, from := homesOf(frontends), returning(frontends)
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(p.homes[name], homes) && slices.Equal(p.returning[name], from) {
		return
	}
	p.homes[name], p.returning[name] = homes, from
	if len(homes) == 0 {
		delete(p.homes, name)
		delete(p.returning, name)
	}
	p.changed()
}

func (p *Prober) changed() {
	p.stale = true
	select {
	case p.wake <- struct{}{}:
	default: // awake already
	}
}

// Run asks until the context ends. The node answers once it is ready: until then what is in force is of a
// former agent, which has said for how long.
func (p *Prober) Run(ctx context.Context, ready <-chan struct{}) {
	ticks := time.NewTicker(Tick)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			p.settle()
		case <-ready:
			p.ready, ready = true, nil
		case now := <-ticks.C:
			p.tick(now)
		}
		p.tell()
	}
}

// settle puts peers in line with nodes and homes.
func (p *Prober) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := p.wanted()
	p.settleOutside(wanted)
	here, known := p.nodes[p.cfg.Here]
	if !known || len(p.homes) == 0 && len(p.peers) == 0 {
		return
	}
	former := p.cfg.Former()
	for name, n := range p.nodes {
		ours, theirs := p.between(here, n)
		a := p.peers[name]
		if !theirs.IsValid() {
			continue // it goes, below
		}
		if a == nil || a.Theirs != theirs || a.Ours != ours {
			was := former[theirs]
			was.Usable = was.Usable || name == p.cfg.Here
			a = &asked{peer: newPeer(was, p.cfg.MTU(ours))}
			p.peers[name] = a
		}
		a.Node = plan.Node{Addrs: addressesOf(n), Peer: plan.Peer{Theirs: theirs, Ours: ours, Ring: plan.RingOf(name)}}
		a.path.limit(p.cfg.MTU(ours))
		a.isHome = name != p.cfg.Here && wanted[name]
	}
	for name, a := range p.peers {
		if _, theirs := p.between(here, p.nodes[name]); !theirs.IsValid() && !a.Outside {
			delete(p.peers, name)
		}
	}
	p.settleServices()
}

// between returns the addresses of an outer header from one node to another, which are of one family.
// Nodes may choose differently where they have both: each takes what is carried to any address of it.
func (p *Prober) between(from, to lb.Node) (ours, theirs netip.Addr) {
	pairs := [][2]netip.Addr{{from.IP4, to.IP4}, {from.IP6, to.IP6}}
	if p.cfg.IPv6 {
		slices.Reverse(pairs)
	}
	for _, pair := range pairs {
		if pair[0].IsValid() && pair[1].IsValid() {
			return pair[0], pair[1]
		}
	}
	return netip.Addr{}, netip.Addr{}
}

func addressesOf(n lb.Node) (out []netip.Addr) {
	for _, a := range []netip.Addr{n.IP4, n.IP6} {
		if a.IsValid() {
			out = append(out, a)
		}
	}
	return out
}

// tick has the node answer, and asks what it is time for.
func (p *Prober) tick(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !now.Before(p.looked.Add(calm)) {
		p.looked = now
		p.findWays()
		was := p.deaf
		p.deaf = p.filters(p.nodes[p.cfg.Here])
		p.stale = p.stale || p.deaf != was
	}
	if _, known := p.nodes[p.cfg.Here]; known && p.ready {
		p.answer()
	}
	var counts map[netip.Addr]Counts
	for _, a := range p.peers {
		if !a.isHome {
			continue
		}
		if counts == nil {
			counts = p.cfg.Counts()
		}
		if a.path.waits {
			a.path.hasComeBack(p.cfg.TakeEchoes(a.Theirs, a.Ours))
		}
		p.ask(a, a.tick(now, counts[a.Theirs], rand.Uint64()))
	}
}

// ask asks the datapath of a peer. One that does not answer may have no next hop that the kernel knows.
func (p *Prober) ask(a *asked, questions []plan.Echo) {
	if len(questions) == 0 {
		return
	}
	if a.path.lost > 0 {
		p.cfg.Resolve(a.Ours, a.Theirs)
	}
	device := p.cfg.Device(a.Theirs)
	for _, q := range questions {
		if q.Peer, q.Ours, q.Device = a.Theirs, a.Ours, device; !p.cfg.Ask(q) {
			a.path.wasNotSent()
			return
		}
	}
}

// answer has the datapath of this node answer without an agent, too, for a while. A node that would lose
// what is carried to it does not answer.
func (p *Prober) answer() {
	if p.deaf == (deafness{}) {
		p.cfg.Answer(deadAgent)
	} else {
		p.cfg.Answer(0)
	}
}

// filters says why this node would lose what is carried to it.
func (p *Prober) filters(here lb.Node) deafness {
	for _, a := range addressesOf(here) {
		if device := p.cfg.Filtered(a); device != "" {
			return deafness{
				fmt.Sprintf("%s, which has its address %s, drops packets of clients that are answered by another device (rp_filter)", device, a),
				fmt.Sprintf("set net.ipv4.conf.%s.rp_filter to 2 (loose), or give the node an InternalIP of another device", device),
			}
		}
	}
	return deafness{}
}

// isMixed says whether some home carries otherwise than this node, as while versions change. It may
// not know what a packet says of nodes that were left out: a packet of a living connection would be
// reset, or go round and round. So nobody is left out then, nor is that home while it is silent, as
// it may live. What is no home is in no ring.
func (p *Prober) isMixed() bool {
	for _, a := range p.peers {
		if a.isHome && a.path.differs {
			return true
		}
	}
	return false
}

// Settle puts peers in line with nodes and homes, and returns when Notify knows them. Nobody is
// asked for that.
func (p *Prober) Settle() {
	p.settle()
	p.tell()
}

// tell tells what has changed.
func (p *Prober) tell() {
	p.telling.Lock()
	defer p.telling.Unlock()
	p.mu.Lock()
	if len(p.peers) == 0 && p.said == nil && !p.stale {
		p.mu.Unlock()
		return
	}
	all, report, mixed := map[string]plan.Node{}, []Status{}, p.isMixed()
	for _, name := range slices.Sorted(maps.Keys(p.peers)) {
		a := p.peers[name]
		n := a.Node
		if v := a.said(); !a.Outside {
			n.Usable, n.Returns, n.Silent, n.MTU = v.Usable(), v.Returns, v.Silent && !mixed, a.path.mtu
		}
		all[name] = n
		if a.isHome {
			v := a.said()
			v.Answered = v.Answered.Truncate(precision)
			report = append(report, Status{name, n.Theirs, v})
		}
	}
	same := (p.said != nil || len(all) == 0) && maps.EqualFunc(all, p.said, func(a, b plan.Node) bool { return a.Peer == b.Peer && slices.Equal(a.Addrs, b.Addrs) })
	news := p.stale || !slices.Equal(report, p.reported)
	p.said, p.reported, p.stale = all, report, false
	p.mu.Unlock()
	if !same {
		p.cfg.Notify(p.cfg.Here, all)
	}
	if news {
		p.cfg.Report(report)
	}
}

// Problems returns what is wrong with the homes of each carried Service.
func (p *Prober) Problems() (problems []lb.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf != (deafness{}) {
		problems = append(problems, lb.Problem{
			Scope: lb.ScopeNode, Object: "the node", Reason: "does not answer other nodes, so they send new connections here by SNAT: " + p.deaf.reason, Remedy: p.deaf.remedy,
		})
	}
	for _, service := range slices.SortedFunc(maps.Keys(p.homes), lb.ServiceName.Compare) {
		for _, h := range p.homes[service] {
			if reason, remedy := p.lack(h); reason != "" {
				problems = append(problems, lb.Problem{
					Object: "Service " + service.String(), Reason: reason, Remedy: remedy,
				})
			}
		}
	}
	return problems
}

// lack says why what begins is not carried to a home, "" where it is.
func (p *Prober) lack(h home) (reason, remedy string) {
	name := cmp.Or(p.names[h.name], h.name)
	a := p.peers[name]
	if addr, err := netip.ParseAddr(name); err == nil && !p.isNodeName(name) {
		return lackOutside(h, addr, a)
	}
	if name == p.cfg.Here || a != nil && a.said().Usable() {
		return "", ""
	}
	remedy = "see headgate peer list, and docs/dsr.md for what carrying needs"
	switch {
	case a != nil:
		reason = a.said().Reason
	case len(addressesOf(p.nodes[p.cfg.Here])) == 0:
		reason, remedy = "this node has no InternalIP", "give the Node "+p.cfg.Here+" an InternalIP in status.addresses"
	default:
		reason, remedy = "it has no InternalIP of a family that this node has", "give the Node "+name+" an InternalIP in status.addresses"
	}
	return fmt.Sprintf("backends on Node %s get new connections by SNAT from Node %s: %s", name, p.cfg.Here, reason), remedy
}

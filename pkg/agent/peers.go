package agent

import (
	"maps"
	"net"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/peers"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
)

// Forwarding says whose packets of clients elsewhere are carried to the nodes of their backends.
type Forwarding string

// The choices.
const (
	ForwardingSNAT   Forwarding = "snat"   // nobody's
	ForwardingMarked Forwarding = "marked" // those of Services that ask for it
	ForwardingDSR    Forwarding = "dsr"    // those of all Services but who do not want it
)

// Carries says whether any may be carried.
func (f Forwarding) Carries() bool { return f == ForwardingMarked || f == ForwardingDSR }

// Encapsulation is the outer header of packets to backends outside. Nodes carry to each other over UDP
// with a proof.
type Encapsulation string

// The choices.
const (
	EncapsulationUDP  Encapsulation = "udp"  // UDP without a proof (GUE, variant 1)
	EncapsulationIPIP Encapsulation = "ipip" // IP in IP
)

// OuterFamily is the family of outer headers where two nodes have both; both are taken.
type OuterFamily string

// The choices.
const (
	OuterIPv4 OuterFamily = "ipv4"
	OuterIPv6 OuterFamily = "ipv6" // where nodes do not reach each other by IPv4
)

// Default is how packets of Services are forwarded that leave it open.
func (f Forwarding) Default() lb.Forwarding {
	if f == ForwardingDSR {
		return lb.DSR
	}
	return lb.SNAT
}

// Peer is a node that carried packets are for, for people.
type Peer struct {
	Node     string    `json:"node"`
	Address  string    `json:"address"`
	Carries  bool      `json:"carries"`
	Returns  bool      `json:"returns"`
	Reason   string    `json:"reason,omitempty"`
	Answered time.Time `json:"answered"`
}

// newPeers returns what asks other nodes whether they carry, nil where nothing is carried.
func newPeers(cfg Config, inbox *reconciler.Inbox, status *statusServer) *peers.Prober {
	if !cfg.Forwarding.Carries() {
		return nil
	}
	var p *peers.Prober
	p = peers.New(peers.Config{
		Here: cfg.NodeName, MTU: mtuAt, Route: peers.RouteTo, Resolve: peers.Resolve, Filtered: netdev.FilteredTunnel,
		IPv6:   cfg.OuterFamily == OuterIPv6,
		Counts: status.carried, Former: status.formerPeers, Notify: inbox.SetPeers,
		Device: deviceTo, Answer: status.answerEchoes, Ask: status.ask, TakeEchoes: status.takeEchoes,
		Report: func(all []peers.Status) {
			said := make([]Peer, len(all))
			for i, s := range all {
				v := s.Verdict
				said[i] = Peer{s.Node, s.Theirs.String(), v.Carries, v.Returns, v.Reason, v.Answered}
			}
			status.problems.setPeers(said, p.Problems())
		},
	})
	return p
}

// deviceTo returns by which device packets to an address leave, 0 without a route.
func deviceTo(a netip.Addr) uint32 {
	device, err := netdev.LeavesBy(a)
	if err != nil {
		return 0
	}
	return device
}

// usualMTU is that of a device which is not found.
const usualMTU = 1500

// mtuAt returns the longest packet that leaves by the device with an address.
func mtuAt(a netip.Addr) uint32 {
	devices, err := net.Interfaces()
	if err != nil {
		return usualMTU
	}
	for _, d := range devices {
		addrs, err := d.Addrs()
		if err != nil {
			continue // it is gone
		}
		for _, at := range addrs {
			if p, ok := at.(*net.IPNet); ok && p.IP.Equal(a.AsSlice()) {
				return uint32(d.MTU)
			}
		}
	}
	return usualMTU
}

// carried returns what was carried to each peer; nothing where that cannot be read.
func (a *statusServer) carried() map[netip.Addr]peers.Counts {
	out := map[netip.Addr]peers.Counts{}
	a.eachPeer(func(r *datapath.Reader, id uint32, p plan.Peer) {
		if c, err := r.PeerCounts(id); err == nil {
			out[p.Theirs] = peers.Counts{SYN: c.CarriedSYN, TCP: c.CarriedTCP, Networks: c.SYNNetworks}
		}
	})
	return out
}

// formerPeers returns the peers that are in force, or were when this agent came: nothing of its own is
// in force at first where it takes over from another version.
func (a *statusServer) formerPeers() map[netip.Addr]plan.Peer {
	out := maps.Clone(a.former)
	a.eachPeer(func(_ *datapath.Reader, _ uint32, p plan.Peer) { out[p.Theirs] = p })
	return out
}

func (a *statusServer) eachPeer(do func(r *datapath.Reader, id uint32, p plan.Peer)) {
	// Before anything is in force there are none.
	_ = datapath.Look(a.open, func(r *datapath.Reader) error {
		for id, p := range r.Peers() {
			do(r, id, p)
		}
		return nil
	})
}

// asker is a datapath that asks others, and answers.
type asker interface {
	AnswerEchoes(time.Duration) error
	Ask(plan.Echo) (bool, error)
	TakeEchoes(theirs, ours netip.Addr) plan.Echoes
}

// answerEchoes has the datapath answer questions of peers for a time.
func (a *statusServer) answerEchoes(during time.Duration) {
	if err := a.asker.AnswerEchoes(during); err != nil {
		a.log.Debug("answer questions of peers", zap.Error(err))
	}
}

// ask asks the datapath of a peer; false if the peer is not in force.
func (a *statusServer) ask(e plan.Echo) bool {
	known, err := a.asker.Ask(e)
	if err != nil {
		a.log.Debug("ask a peer", zap.Stringer("peer", e.Peer), zap.Error(err))
	}
	return known
}

func (a *statusServer) takeEchoes(theirs, ours netip.Addr) plan.Echoes {
	return a.asker.TakeEchoes(theirs, ours)
}

// peerMetrics returns what was carried to each peer, and from it.
func peerMetrics(r *datapath.Reader) (out []metrics.Peer, err error) {
	for id, p := range r.Peers() {
		c, err := r.PeerCounts(id)
		if err != nil {
			return nil, err
		}
		out = append(out, metrics.Peer{Address: p.Theirs.String(), Usable: p.Usable, Carried: c.Carried, Received: c.Received})
	}
	return out, nil
}

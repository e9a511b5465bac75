package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// peer is a node that packets are carried to, as it is shown: by what the kernel has of it, and
// what the agent says.
type peer struct {
	Node    string `json:"node,omitempty"` // "" where no agent says it
	Address string `json:"address"`
	Outside bool   `json:"outside,omitempty"` // a backend without a node, which is not asked
	Usable  bool   `json:"usable"`
	Carries bool   `json:"carries"`
	Returns bool   `json:"returns"`
	MTU     uint32 `json:"mtu"`
	// Answered is when its last echo came back, nil if the agent does not know.
	Answered *time.Time          `json:"answered,omitempty"`
	Reason   string              `json:"reason,omitempty"` // why it is not usable
	Counts   datapath.PeerCounts `json:"counts"`
}

func (p peer) names() []string { return []string{p.Address, p.Node} }

func (peer) owners() []plan.Service { return nil }

var peerNoun = noun[peer]{
	name: "peer", kind: "Peer", short: "nodes that packets are carried to, and why not", words: "{NODE | ADDRESS}",
	columns: []column[peer]{
		{title: "NODE", of: func(p peer) any { return p.where() }},
		{title: "ADDRESS", of: func(p peer) any { return p.Address }},
		{title: "USABLE", of: func(p peer) any { return p.Usable }},
		{title: "CARRIES", of: func(p peer) any { return p.Carries }},
		{title: "RETURNS", of: func(p peer) any { return p.Returns }},
		{title: "MTU", of: func(p peer) any { return p.MTU }},
		{title: "ANSWERED", of: func(p peer) any { return p.answered() }},
		{title: "CARRIED", of: func(p peer) any { return p.Counts.Carried }},
		{title: "RECEIVED", of: func(p peer) any { return p.Counts.Received }, wide: true},
		{title: "WHY NOT", of: func(p peer) any { return p.Reason }},
	},
	read: readPeers,
}

func newPeer(e *env) *cobra.Command { return peerNoun.command(e) }

func readPeers(s *sight, do func(*peer) error) error {
	report, err := s.env.readReport()
	if err != nil {
		return err
	}
	said := map[string]agent.Peer{}
	for _, p := range report.Peers {
		said[p.Address] = p
	}
	for id, p := range s.Peers() {
		counts, err := s.PeerCounts(id)
		if err != nil {
			return err
		}
		one := peer{Address: p.Theirs.String(), Outside: p.Outside, Usable: p.Usable, Carries: p.Usable, Returns: p.Returns, MTU: p.MTU, Counts: counts}
		switch asked, ok := said[one.Address]; {
		case ok:
			one.Node, one.Carries, one.Returns, one.Reason = asked.Node, asked.Carries, asked.Returns, asked.Reason
			if !asked.Answered.IsZero() {
				one.Answered = &asked.Answered
			}
		case !p.Usable:
			one.Reason = "not asked: no backend of a carried Service runs there"
		}
		if err := do(&one); err != nil {
			return err
		}
	}
	return nil
}

func (p peer) where() string {
	if p.Outside {
		return "(outside)"
	}
	return p.Node
}

// answered is how long ago the peer answered, nil where nobody knows.
func (p peer) answered() any {
	if p.Answered == nil {
		return nil
	}
	return fmt.Sprintf("%s ago", time.Since(*p.Answered).Round(time.Second))
}

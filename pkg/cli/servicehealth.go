package cli

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
)

// states counts backends by their state, as headgate backend list has it.
type states map[string]int

// stateOrder is how states stand in a line: the best first.
var stateOrder = []string{
	string(lb.StateReady), string(lb.StateServing), string(lb.StateTerminating), string(lb.StateUnready), string(lb.StateDraining), ejected, unknown,
}

// cell returns them as columns have them, nil where no agent says them.
func (s states) cell() any {
	if s == nil {
		return nil
	}
	var all []string
	for _, state := range stateOrder {
		if s[state] > 0 {
			all = append(all, fmt.Sprint(s[state], " ", state))
		}
	}
	return strings.Join(all, ", ")
}

// judge says of Service ports how their backends are, where an agent tells.
func judge(s *sight, all []service) {
	said := s.env.described(s.membersAndNode(all)...)
	if said == nil {
		return
	}
	zone := said.ZoneOf(s.Node())
	for i := range all {
		all[i].judge(s, said, zone)
	}
}

// membersAndNode are the words by which the agent knows the backends of few Service ports, and those on this node, by
// which its zone is known; none of many, for all that there are.
func (s *sight) membersAndNode(all []service) []string {
	words := []string{lb.NodeWord + s.Node()}
	for i := range all {
		if len(words)+len(all[i].ids) > fewAddresses {
			return nil
		}
		for _, id := range all[i].ids {
			words = append(words, s.Backend(id).At.Addr.String())
		}
	}
	return words
}

// judge does so of one, given the zone of this node, "" where nobody knows it.
func (s *service) judge(r *sight, said lb.Descriptions, zone string) {
	var began, inZone uint64
	s.States = states{}
	for _, id := range s.ids {
		b := backend{Load: r.Backend(id).Load}
		b.describe(said.Of(r.Backend(id).At))
		s.States[b.State]++
		began += b.Connections
		if b.Zone == zone {
			inZone += b.Connections
		}
	}
	if zone != "" && began > 0 {
		s.InZone = new(percent(100 * float64(inZone) / float64(began)))
	}
}

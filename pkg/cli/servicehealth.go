package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
)

// states counts backends by their state, as headgate backend list has it.
type states map[string]int

// stateOrder is how states stand in a line: the best first.
var stateOrder = [...]string{
	string(lb.StateReady), string(lb.StateServing), string(lb.StateTerminating), string(lb.StateUnready), string(lb.StateDraining), ejected, unknown,
}

// stateRank is the place of a state among them. That of a later agent is unknown.
func stateRank(state string) int {
	if i := slices.Index(stateOrder[:], state); i >= 0 {
		return i
	}
	return len(stateOrder) - 1
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
	said := s.env.told(s.membersAndNode(all)...)
	if said == nil {
		return
	}
	zone := said.ZoneOf(s.Node())
	for i := range all {
		all[i].judge(s, said, zone)
		all[i].ids = nil
	}
}

// judgment is how the backends of a Service port are, in the little memory that very many of them should take.
type judgment struct {
	counts        [len(stateOrder)]int32
	began, inZone uint64
	zoned         bool // it is known in which zone this node is
}

// states returns how many backends there are in each state.
func (j *judgment) states() states {
	if j == nil {
		return nil
	}
	out := states{}
	for i, n := range j.counts {
		if n > 0 {
			out[stateOrder[i]] = int(n)
		}
	}
	return out
}

// ready returns how many backends are ready and not ejected, nil where no agent says it.
func (j *judgment) ready() *int {
	if j == nil {
		return nil
	}
	return new(int(j.counts[0]))
}

// share returns how much began with backends in the zone of this node, nil where that is not known.
func (j *judgment) share() *percent {
	if j == nil || !j.zoned || j.began == 0 {
		return nil
	}
	return new(percent(100 * float64(j.inZone) / float64(j.began)))
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
func (s *service) judge(r *sight, said *lb.Told, zone string) {
	s.judged = &judgment{zoned: zone != ""}
	for _, id := range s.ids {
		b := r.Backend(id)
		d := said.Of(b.At, s.port.ServiceName)
		s.judged.counts[stateRank(stateOf(d, b.Load))]++
		s.judged.began += b.Connections
		if d != nil && d.Zone == zone {
			s.judged.inZone += b.Connections
		}
	}
}

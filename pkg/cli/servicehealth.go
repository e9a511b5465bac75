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
		at := r.Backend(id)
		b := backend{Load: at.Load}
		b.describe(said.Of(at.At))
		i := slices.Index(stateOrder[:], b.State)
		if i < 0 { // of a later agent
			i = slices.Index(stateOrder[:], unknown)
		}
		s.judged.counts[i]++
		s.judged.began += b.Connections
		if b.Zone == zone {
			s.judged.inZone += b.Connections
		}
	}
}

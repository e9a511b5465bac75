package manifest

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// settle finds out what is in force of an object, and puts it into the update
// where that is news.
func (s *state) settle(k key, u *lb.Update) {
	delete(s.twice, k)
	delete(s.held, k)
	claims := s.claims[k]
	winner := firstGood(k, claims)
	if problems := duplicates(k, claims, winner); len(problems) > 0 {
		s.twice[k] = problems
	}
	var v value
	if winner != nil {
		v = winner.entries[k].value
	} else if owner, ok := ownerOf(k, claims); ok {
		s.held[k] = owner
	}
	if v.equal(s.told[k]) {
		return
	}
	s.put(k, v, u)
	if s.told[k] = v; v == (value{}) {
		delete(s.told, k)
	}
}

// put puts an object into an update: gone, where it has no value.
func (s *state) put(k key, v value, u *lb.Update) {
	switch k.kind {
	case serviceKind:
		u.Services[lb.ServiceName{Namespace: k.namespace, Name: k.name}] = v.service
	case sliceKind:
		u.Slices[lb.SliceName{Namespace: k.namespace, Name: k.name}] = v.slice
	case podKind:
		if u.Pods == nil {
			u.Pods = map[lb.PodName]*lb.Pod{}
		}
		u.Pods[lb.PodName{Namespace: k.namespace, Name: k.name}] = v.pod
	case nodeKind:
		u.Node = v.node
		if v.node == nil {
			u.Node = &lb.Node{Name: s.node}
		}
	}
}

// firstGood returns the first file that has ever had a good version of an
// object, nil where none has.
func firstGood(k key, claims []*file) *file {
	for _, f := range claims {
		if f.entries[k].good {
			return f
		}
	}
	return nil
}

// ownerOf returns the Service that an object belongs to, where that is known.
func ownerOf(k key, claims []*file) (owner lb.ServiceName, ok bool) {
	for _, f := range claims {
		if owner = f.entries[k].holds; owner.Name != "" {
			return owner, true
		}
	}
	return owner, false
}

// duplicates returns a Problem for each file whose version of an object does
// not count. A file that is just being renamed has its objects in two places.
func duplicates(k key, claims []*file, winner *file) []lb.Problem {
	var live []*file
	for _, f := range claims {
		if !f.vanishing {
			live = append(live, f)
		}
	}
	if len(live) < 2 {
		return nil
	}
	if winner == nil || winner.vanishing {
		winner = live[0]
	}
	var problems []lb.Problem
	for _, f := range live {
		if f != winner {
			problems = append(problems, lb.Problem{File: f.path, Object: k.String(),
				Reason: "is in " + winner.path + " too, and that one counts", Remedy: "remove it from one of them"})
		}
	}
	return problems
}

// account fills in what an update always says in full.
func (s *state) account(u *lb.Update) {
	u.Problems = slices.Clone(s.directory)
	u.Partial = s.lost
	for _, name := range slices.Sorted(maps.Keys(s.faulty)) {
		u.Problems = append(u.Problems, s.faulty[name].problems...)
		u.Partial = u.Partial || s.faulty[name].unread
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.twice), key.compare) {
		u.Problems = append(u.Problems, s.twice[k]...)
	}
	u.Hold = map[lb.ServiceName]bool{}
	for _, owner := range s.held {
		u.Hold[owner] = true
	}
}

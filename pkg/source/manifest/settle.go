package manifest

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/objects"
)

// settle finds out what is in force of an object.
func (s *state) settle(id objects.ID) {
	delete(s.twice, id)
	claims := s.claims[id]
	winner := firstGood(id, claims)
	if problems := duplicates(id, claims, winner); len(problems) > 0 {
		s.twice[id] = problems
	}
	e := &objects.Entry{Key: id.Key}
	if winner != nil {
		e.Value = winner.entries[id].value
	} else if len(claims) > 0 {
		e.Bad, e.Owner = true, ownerOf(id, claims)
	}
	s.stores[id.Kind].Apply(e)
}

// firstGood returns the first file that has ever had a good version of an
// object, nil where none has.
func firstGood(id objects.ID, claims []*file) *file {
	for _, f := range claims {
		if f.entries[id].good {
			return f
		}
	}
	return nil
}

// ownerOf returns the Service that an object belongs to, where that is known.
func ownerOf(id objects.ID, claims []*file) lb.ServiceName {
	for _, f := range claims {
		if owner := f.entries[id].owner; owner.Name != "" {
			return owner
		}
	}
	return lb.ServiceName{}
}

// duplicates returns a Problem for each file whose version of an object does
// not count. A file that is just being renamed has its objects in two places.
func duplicates(id objects.ID, claims []*file, winner *file) []lb.Problem {
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
			problems = append(problems, lb.Problem{File: f.path, Object: id.String(),
				Reason: "is in " + winner.path + " too, and that one counts", Remedy: "remove it from one of them"})
		}
	}
	return problems
}

// duplicated returns the Problems of objects that several files have, of each file
// the first ones.
func (s *state) duplicated() (problems []lb.Problem) {
	told := map[string]int{}
	for _, id := range slices.SortedFunc(maps.Keys(s.twice), objects.ID.Compare) {
		for _, p := range s.twice[id] {
			if told[p.File]++; told[p.File] <= lb.MostProblems {
				problems = append(problems, p)
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(told)) {
		if more := told[file] - lb.MostProblems; more > 0 {
			problems = append(problems, lb.MoreProblems(file, "", more))
		}
	}
	return problems
}

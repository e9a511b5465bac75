package manifest

import (
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// state is what all files say together, and what of it has been passed on.
type state struct {
	node   string
	files  map[string]*file     // by name
	claims map[key][]*file      // the files that have an object, in order
	told   map[key]value        // what was passed on
	dirty  map[key]bool         // objects to look at again
	faulty map[string]*file     // files with problems
	twice  map[key][]lb.Problem // objects that several files have
	held   map[key]lb.ServiceName

	directory []lb.Problem // what is wrong with the directory itself
	lost      bool         // the directory cannot be read

	started  bool
	problems []lb.Problem // as passed on, and so are the next two
	hold     map[lb.ServiceName]bool
	partial  bool
}

func newState(node string) *state {
	return &state{
		node:   node,
		files:  map[string]*file{},
		claims: map[key][]*file{},
		told:   map[key]value{},
		dirty:  map[key]bool{},
		faulty: map[string]*file{},
		twice:  map[key][]lb.Problem{},
		held:   map[key]lb.ServiceName{},
	}
}

// change alters a file by a function, and notes which objects that concerns.
func (s *state) change(f *file, alter func()) {
	s.files[f.name] = f
	for k := range f.entries {
		s.disclaim(k, f)
	}
	alter()
	for k := range f.entries {
		s.claim(k, f)
	}
	delete(s.faulty, f.name)
	if len(f.problems) > 0 || f.unread {
		s.faulty[f.name] = f
	}
}

// set takes over a new content of a file.
func (s *state) set(f *file, c content) { s.change(f, func() { f.update(c) }) }

// fail notes that a file cannot be read. What it said stays in force.
func (s *state) fail(f *file, err error) {
	s.change(f, func() {
		f.problems, f.unread = convert.Problems(err), true
	})
}

// remove forgets a file and its objects.
func (s *state) remove(f *file) {
	s.change(f, func() { f.entries, f.problems, f.unread = nil, nil, false })
	delete(s.files, f.name)
}

// vanish notes whether a file seems to be gone, or is back.
func (s *state) vanish(f *file, gone bool) {
	if f.vanishing != gone {
		s.change(f, func() { f.vanishing = gone })
	}
}

func (s *state) claim(k key, f *file) {
	all := s.claims[k]
	i, _ := slices.BinarySearchFunc(all, f.name, func(f *file, name string) int { return strings.Compare(f.name, name) })
	s.claims[k] = slices.Insert(all, i, f)
	s.dirty[k] = true
}

func (s *state) disclaim(k key, f *file) {
	s.claims[k] = slices.DeleteFunc(s.claims[k], func(g *file) bool { return f == g })
	if len(s.claims[k]) == 0 {
		delete(s.claims, k)
	}
	s.dirty[k] = true
}

// next returns what is to be passed on; ok is false where that is nothing.
func (s *state) next() (u lb.Update, ok bool) {
	u = lb.Update{Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	for k := range s.dirty {
		s.settle(k, &u)
	}
	clear(s.dirty)
	if !s.started && u.Node == nil {
		u.Node = &lb.Node{Name: s.node}
	}
	s.account(&u)
	// The first update always has the Node, and so is never left out.
	ok = len(u.Services) > 0 || len(u.Slices) > 0 || len(u.Pods) > 0 || u.Node != nil ||
		!slices.Equal(u.Problems, s.problems) || !maps.Equal(u.Hold, s.hold) || u.Partial != s.partial
	s.started, s.problems, s.hold, s.partial = true, u.Problems, u.Hold, u.Partial
	u.Problems, u.Hold = slices.Clone(u.Problems), maps.Clone(u.Hold)
	return u, ok
}

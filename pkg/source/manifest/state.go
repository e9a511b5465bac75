package manifest

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

// state is what all files say together.
type state struct {
	files  map[string]*file            // by name
	claims map[objects.ID][]*file      // the files that have an object, in order
	dirty  map[objects.ID]bool         // objects to look at again
	unread map[string]bool             // files in which something cannot be read
	twice  map[objects.ID][]lb.Problem // objects that several files have
	stores map[string]*objects.Store   // by kind
	out    *objects.Batch

	directory []lb.Problem // what is wrong with the directory itself
	lost      bool         // the directory cannot be read
}

func newState(node string, of kinds) *state {
	s := &state{
		files:  map[string]*file{},
		claims: map[objects.ID][]*file{},
		dirty:  map[objects.ID]bool{},
		unread: map[string]bool{},
		twice:  map[objects.ID][]lb.Problem{},
		stores: map[string]*objects.Store{},
		out:    objects.NewBatch(node),
	}
	for _, k := range of {
		s.stores[k.Name] = objects.NewStore(k, s.out)
	}
	return s
}

// change alters a file by a function, and notes which objects that concerns.
func (s *state) change(f *file, alter func()) {
	s.files[f.name] = f
	for id := range f.entries {
		s.disclaim(id, f)
	}
	alter()
	for id := range f.entries {
		s.claim(id, f)
	}
	s.out.Note(objects.ID{Kind: "file", Key: objects.Key{Name: f.name}}, f.problems)
	if s.unread[f.name] = f.unread; !f.unread {
		delete(s.unread, f.name)
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

func (s *state) claim(id objects.ID, f *file) {
	all := s.claims[id]
	i, _ := slices.BinarySearchFunc(all, f.name, func(f *file, name string) int { return strings.Compare(f.name, name) })
	s.claims[id] = slices.Insert(all, i, f)
	s.dirty[id] = true
}

func (s *state) disclaim(id objects.ID, f *file) {
	s.claims[id] = slices.DeleteFunc(s.claims[id], func(g *file) bool { return f == g })
	if len(s.claims[id]) == 0 {
		delete(s.claims, id)
	}
	s.dirty[id] = true
}

// next returns what is to be passed on; ok is false where that is nothing.
func (s *state) next() (u lb.Update, ok bool) {
	for id := range s.dirty {
		s.settle(id)
	}
	clear(s.dirty)
	// Problems are told in this order: of the directory, of files, of several files.
	s.out.Note(objects.ID{}, s.directory)
	s.out.Note(objects.ID{Kind: "files"}, s.duplicated())
	s.out.SetPartial(s.lost || len(s.unread) > 0)
	return s.out.Next()
}

package objects

import "github.com/headgate/headgate/pkg/lb"

// Store keeps the last good values of the objects of one kind, and puts what changes
// into a Batch. A value is shared with whoever it is passed to, so that there is one copy
// of everything in the process. It is for one goroutine at a time.
type Store struct {
	Kind
	out  *Batch
	kept map[Key]any // none of them nil
}

// NewStore returns an empty store.
func NewStore(k Kind, out *Batch) *Store { return &Store{Kind: k, out: out, kept: map[Key]any{}} }

// Apply takes over an entry. The last good value of an object that is bad now stays.
func (s *Store) Apply(e *Entry) { s.out.change(func() { s.apply(e) }) }

// Remove forgets an object.
func (s *Store) Remove(k Key) { s.Apply(&Entry{Key: k}) }

// Replace takes over all objects that there are, as one change.
func (s *Store) Replace(entries []*Entry) {
	s.out.change(func() {
		s.forgetOthers(entries)
		for _, e := range entries {
			s.apply(e)
		}
		delete(s.out.waiting, s.Name)
	})
}

// forgetOthers forgets the objects that are not among some, of which there are none at first.
func (s *Store) forgetOthers(entries []*Entry) {
	if len(s.kept)+len(s.out.problems) == 0 {
		return
	}
	there := make(map[Key]bool, len(entries))
	for _, e := range entries {
		there[e.Key] = true
	}
	for k := range s.kept {
		if !there[k] {
			s.apply(&Entry{Key: k})
		}
	}
	for id := range s.out.problems { // that of the kind as a whole too
		if id.Kind == s.Name && !there[id.Key] {
			s.apply(&Entry{Key: id.Key})
		}
	}
}

func (s *Store) apply(e *Entry) {
	old := s.kept[e.Key]
	var frozen lb.ServiceName
	if e.Bad && old == nil {
		frozen = e.Owner
	}
	s.out.note(ID{s.Name, e.Key}, e.Problems, frozen)
	if e.Bad || old == e.Value || old != nil && e.Value != nil && s.same(old, e.Value) {
		return
	}
	if s.kept[e.Key] = e.Value; e.Value == nil {
		delete(s.kept, e.Key)
	}
	s.put(&s.out.update, e.Key, e.Value)
	s.out.news = true
}

package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// kind is what is done with the objects of one kind; V is what is kept of them.
type kind[V any] struct {
	name string
	// read returns what matters of an object, nil for nothing. With an error as
	// well, the value is to be used all the same.
	read func(obj any) (*V, error)
	same func(a, b *V) bool // of values that are not nil
	// owner returns the Service that an object belongs to, the zero name for none.
	owner func(obj any) lb.ServiceName
	// put puts a value into an update, nil where it is gone. It is never called
	// twice at a time.
	put func(u *lb.Update, n name, v *V)
}

// entry is what is kept of an object instead of the object.
type entry[V any] struct {
	name     name
	value    *V // nil where nothing matters of the object, or it is bad
	bad      bool
	problems []lb.Problem
	owner    lb.ServiceName
}

// store is where a reflector puts its objects. Objects are converted first of
// all and then dropped: a value in kept is shared with whoever was passed it, so
// that there is one copy of everything in the process.
//
// A reflector calls from one goroutine at a time.
type store[V any] struct {
	kind[V]
	out  *batch
	kept map[name]*V // the last good values, none of them nil
	said map[name]bool
}

var (
	_ cache.ReflectorStore    = (*store[lb.Service])(nil)
	_ cache.TransformingStore = (*store[lb.Service])(nil)
)

func newStore[V any](k kind[V], out *batch) *store[V] {
	return &store[V]{kind: k, out: out, kept: map[name]*V{}, said: map[name]bool{}}
}

// Add takes an object that is new or changed.
func (s *store[V]) Add(obj any) error {
	e := s.convert(obj)
	s.out.change(func() { s.apply(e) })
	return nil
}

// Update is Add.
func (s *store[V]) Update(obj any) error { return s.Add(obj) }

// Delete takes an object that is gone.
func (s *store[V]) Delete(obj any) error {
	n := nameOf(obj)
	s.out.change(func() { s.remove(n) })
	return nil
}

// Replace takes all objects that there are, from a list or from the stream that
// stands in for one, as one change.
func (s *store[V]) Replace(objs []any, _ string) error {
	entries := make(map[name]*entry[V], len(objs))
	for _, obj := range objs {
		e := s.convert(obj)
		entries[e.name] = e
	}
	s.out.change(func() {
		for n := range s.kept {
			if entries[n] == nil {
				s.remove(n)
			}
		}
		for n := range s.said {
			if entries[n] == nil {
				s.remove(n)
			}
		}
		for _, e := range entries {
			s.apply(e)
		}
		s.out.note(subject{kind: s.name}, nil, lb.ServiceName{})
		s.out.answered(s.name)
	})
	return nil
}

// Resync does nothing: nobody needs to hear everything again.
func (s *store[V]) Resync() error { return nil }

// Transformer lets the reflector keep entries too, while it gathers what the
// server streams in place of a list.
func (s *store[V]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.convert(obj), nil }
}

// convert returns what is to be kept of an object.
func (s *store[V]) convert(obj any) *entry[V] {
	if e, done := obj.(*entry[V]); done {
		return e
	}
	value, err := s.read(obj)
	e := &entry[V]{name: nameOf(obj), value: value, bad: value == nil && err != nil, problems: convert.Problems(err)}
	if e.bad {
		e.owner = s.owner(obj)
	}
	return e
}

// apply takes over an entry. The last good value of an object that is bad now
// stays.
func (s *store[V]) apply(e *entry[V]) {
	old := s.kept[e.name]
	var hold lb.ServiceName
	if e.bad && old == nil {
		hold = e.owner
	}
	s.say(e.name, e.problems, hold)
	if e.bad || old == e.value || old != nil && e.value != nil && s.same(old, e.value) {
		return
	}
	s.set(e.name, e.value)
}

// remove forgets an object.
func (s *store[V]) remove(n name) {
	s.say(n, nil, lb.ServiceName{})
	if s.kept[n] != nil {
		s.set(n, nil)
	}
}

// set keeps a value, or none (nil), and passes it on.
func (s *store[V]) set(n name, v *V) {
	if v == nil {
		delete(s.kept, n)
	} else {
		s.kept[n] = v
	}
	s.put(&s.out.update, n, v)
	s.out.news = true
}

// say notes what is wrong with an object, and that it has to be taken back.
func (s *store[V]) say(n name, problems []lb.Problem, hold lb.ServiceName) {
	s.out.note(subject{s.name, n}, problems, hold)
	if len(problems) > 0 {
		s.said[n] = true
	} else {
		delete(s.said, n)
	}
}

// nameOf returns the name of an object of the API.
func nameOf(obj any) name {
	if o, ok := obj.(metav1.Object); ok {
		return name{Namespace: o.GetNamespace(), Name: o.GetName()}
	}
	return name{}
}

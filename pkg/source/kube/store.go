package kube

import (
	"k8s.io/client-go/tools/cache"

	"github.com/headgate/headgate/pkg/source/objects"
)

// reflected is a store that a reflector feeds. A reflector calls from one goroutine at a
// time.
type reflected struct{ *objects.Store }

var (
	_ cache.ReflectorStore    = reflected{}
	_ cache.TransformingStore = reflected{}
)

// Add takes an object that is new or changed.
func (s reflected) Add(obj any) error {
	s.Apply(entry(obj))
	return nil
}

// Update is Add.
func (s reflected) Update(obj any) error { return s.Add(obj) }

// Delete takes an object that is gone.
func (s reflected) Delete(obj any) error {
	s.Remove(obj.(*object).entry.Key)
	return nil
}

// Replace takes all objects that there are, from a list or from the stream that
// stands in for one, as one change.
func (s reflected) Replace(objs []any, _ string) error {
	entries := make([]*objects.Entry, len(objs))
	for i, obj := range objs {
		entries[i] = entry(obj)
	}
	s.Store.Replace(entries)
	return nil
}

// Resync does nothing: nobody needs to hear everything again.
func (s reflected) Resync() error { return nil }

// Transformer lets the reflector keep entries alone while it gathers what the
// server streams in place of a list.
func (s reflected) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return entry(obj), nil }
}

// entry returns what is kept of an object, which a reflector may have gathered already.
func entry(obj any) *objects.Entry {
	if e, done := obj.(*objects.Entry); done {
		return e
	}
	return obj.(*object).entry
}

// Package objects keeps what sources read of Kubernetes objects, and gathers what is to
// be passed on of them. Files and the API server feed the same stores: an object is
// converted first of all and then dropped, and of a bad one the last good version stays.
package objects

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// Key is the name of an object, "" as namespace where it has none.
type Key struct {
	Namespace string
	Name      string
}

// KeyOf returns the name of an object of the API.
func KeyOf(obj any) Key {
	if o, ok := obj.(metav1.Object); ok {
		return Key{Namespace: o.GetNamespace(), Name: o.GetName()}
	}
	return Key{}
}

// ID is an object, or with an empty name all of a kind.
type ID struct {
	Kind string
	Key
}

// String returns the object as it stands in messages: "Service default/web".
func (id ID) String() string {
	switch {
	case id.Name == "":
		return id.Kind
	case id.Namespace == "":
		return id.Kind + " " + id.Name
	default:
		return id.Kind + " " + id.Namespace + "/" + id.Name
	}
}

// Compare orders by kind, namespace, name.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Kind, o.Kind), cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kind is a kind of objects: what it is called, which of them matter, and what is done
// with them. Values are pointers of one type for each kind.
type Kind struct {
	Name    string // such as "Service"
	Version schema.GroupVersion
	Earlier schema.GroupVersion // where API servers before had it, zero for nowhere
	Path    string              // in the API, such as "services"
	New     func() Object
	List    func() runtime.Object

	// Labels and Fields select the objects to watch, nil Fields all. OptionalFields
	// says that these save work, and no more.
	Labels         string
	Fields         fields.Selector
	OptionalFields bool
	// Only is the name of the only object that matters, "" where all may.
	Only string
	// ClusterWide objects are in no namespace.
	ClusterWide bool
	// APIOnly objects are not read from files.
	APIOnly bool

	// Owner returns the Service that an object belongs to, the zero name for none.
	Owner func(k Key, labels map[string]string) lb.ServiceName
	read  func(obj Object) (any, error)
	same  func(a, b any) bool
	put   func(u *lb.Update, k Key, v any)
}

// typed returns a kind with what is done with its objects, of type O, of which values of
// type V are kept. read returns what matters of an object, nil for nothing; with an error
// as well, the value is to be used all the same. same compares values that are not
// nil. put puts one into an update, nil where it is gone.
func typed[O Object, V any](k Kind, read func(O) (*V, error), same func(a, b *V) bool, put func(u *lb.Update, k Key, v *V)) Kind {
	k.read = func(obj Object) (any, error) {
		v, err := read(obj.(O))
		if v == nil {
			return nil, err
		}
		return v, err
	}
	k.same = func(a, b any) bool { return same(a.(*V), b.(*V)) }
	k.put = func(u *lb.Update, key Key, v any) {
		value, _ := v.(*V)
		put(u, key, value)
	}
	if k.Owner == nil {
		k.Owner = func(Key, map[string]string) lb.ServiceName { return lb.ServiceName{} }
	}
	return k
}

// Entry is what is kept of an object instead of the object.
type Entry struct {
	Key
	Value    any // nil where nothing matters of the object, or it is bad
	Bad      bool
	Problems []lb.Problem
	Owner    lb.ServiceName
}

// Read returns what is to be kept of an object.
func (k Kind) Read(obj Object) *Entry {
	value, err := k.read(obj)
	key := KeyOf(obj)
	return &Entry{
		Key: key, Value: value, Bad: value == nil && err != nil,
		Problems: convert.Problems(err), Owner: k.Owner(key, obj.GetLabels()),
	}
}

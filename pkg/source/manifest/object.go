package manifest

import (
	"cmp"
	"reflect"

	"github.com/headgate/headgate/pkg/lb"
)

// key identifies an object.
type key struct {
	kind      string // such as "Service"
	namespace string // "" for Nodes
	name      string
}

// String returns the object as it stands in messages: "Service default/web".
func (k key) String() string {
	switch {
	case k.name == "":
		return k.kind
	case k.namespace == "":
		return k.kind + " " + k.name
	default:
		return k.kind + " " + k.namespace + "/" + k.name
	}
}

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.name, o.name))
}

// value is what an object means: one field of its kind, or none where a load
// balancer has nothing to do for it.
type value struct {
	service *lb.Service
	slice   *lb.Slice
	node    *lb.Node
	pod     *lb.Pod
}

// from returns the value with the file that it is from. Equal documents share
// their values, so this one is a copy.
func (v value) from(file string) value {
	if v.service != nil {
		s := *v.service
		s.File = file
		v.service = &s
	}
	return v
}

func (v value) equal(o value) bool { return reflect.DeepEqual(v, o) }

// object is one object as a file has it.
type object struct {
	key   key
	value value
	bad   bool           // value is nothing, whatever was good before stays
	holds lb.ServiceName // the Service that the object belongs to, where known
}

// finding is a Problem that does not know its place in the file yet.
type finding struct {
	lb.Problem
	line int // in the document, from 0
}

// document is what one document of a file says. It depends on nothing but its
// text, so that it is kept as long as the text stays.
type document struct {
	objects  []object
	findings []finding
	opaque   bool // there may be objects in it that cannot be told
}

// reject notes what is wrong with an object.
func (d *document) reject(k key, m mistake) {
	d.findings = append(d.findings, finding{Problem: lb.Problem{
		Object: k.String(), Field: m.field, Value: m.value, Reason: m.reason, Remedy: m.remedy,
	}})
}

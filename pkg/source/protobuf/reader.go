// Package protobuf reads Services, EndpointSlices and lists of them from the API server's
// protobuf. It makes only those values that matter to a load balancer, and one for each
// name that comes again and again; the decoder of the API makes 190 values of a slice of
// ten endpoints. What it reads, that decoder reads with the same values. All else, be it
// wrong, odd or of another kind, it leaves to that decoder.
package protobuf

import (
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// The fields of lists and objects that matter.
const (
	listMeta  protowire.Number = 1
	listItems protowire.Number = 2

	objectMeta    protowire.Number = 1
	serviceSpec   protowire.Number = 2
	serviceStatus protowire.Number = 3
)

// Reader reads objects of one kind into the same memory again and again. It is for one
// goroutine.
type Reader struct {
	kind
	version, name string
	meta          metaReader
	slices        sliceReader
	svc           corev1.Service
}

// kind is what objects of a kind look like, and how they are read.
type kind struct {
	*shape // nil where they are not
	read   func(*Reader, []byte) Object
}

var (
	serviceKind = corev1.SchemeGroupVersion.WithKind("Service")
	sliceKind   = discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")

	kinds = map[schema.GroupVersionKind]kind{
		serviceKind: {shapeOf(reflect.TypeFor[corev1.Service]()), (*Reader).service},
		sliceKind:   {shapeOf(reflect.TypeFor[discoveryv1.EndpointSlice]()), (*Reader).slice},
	}
)

// NewReader returns a reader of a kind. If there is none of that kind it leaves all to the
// decoder of the API.
func NewReader(k schema.GroupVersionKind) *Reader {
	return &Reader{kind: kinds[k], version: k.GroupVersion().String(), name: k.Kind, meta: newMetaReader(), slices: newSliceReader()}
}

// listShape is that of a list of any kind.
var listShape = shapeOf(reflect.TypeFor[struct {
	Meta  metav1.ListMeta `protobuf:"bytes,1"`
	Items [][]byte        `protobuf:"bytes,2"`
}]())

// Object reads an object, nil where the decoder of the API is to read it. Of what it
// returns, strings alone outlast the next call.
func (r *Reader) Object(data []byte) Object {
	raw, ok := r.open(data, r.name)
	if !ok || !r.fits(raw) {
		return nil
	}
	return r.read(r, raw)
}

// List reads a list, and passes on each object, which is good until the function
// returns. nil says that the decoder of the API is to read the list, all of it: some
// objects may have been passed on by then.
func (r *Reader) List(data []byte, each func(Object)) *metav1.ListMeta {
	raw, ok := r.open(data, r.name+"List")
	if !ok || !listShape.fits(raw) {
		return nil
	}
	meta := &metav1.ListMeta{}
	for v := (fields{rest: raw}); v.next(); {
		switch {
		case v.number == listMeta:
			meta = message[metav1.ListMeta](v.bytes)
		case v.number == listItems && !r.fits(v.bytes):
			return nil
		case v.number == listItems:
			each(r.read(r, v.bytes))
		}
	}
	return meta
}

// open returns what is in an envelope for a kind; ok is false where that is not ours to read.
func (r *Reader) open(data []byte, name string) (raw []byte, ok bool) {
	e, ok := open(data)
	return e.raw, ok && r.shape != nil && string(e.version) == r.version && string(e.kind) == name
}

// service reads the metadata of a Service that matters, and all else of it.
func (r *Reader) service(b []byte) Object {
	r.svc = corev1.Service{}
	for v := (fields{rest: b}); v.next(); {
		switch v.number {
		case objectMeta:
			r.svc.ObjectMeta = r.meta.read(v.bytes)
			r.meta.age(v.bytes, &r.svc.ObjectMeta)
		case serviceSpec:
			_ = r.svc.Spec.Unmarshal(v.bytes) // it takes what fits
		case serviceStatus:
			_ = r.svc.Status.Unmarshal(v.bytes)
		}
	}
	return &r.svc
}

// slice reads what matters of an EndpointSlice.
func (r *Reader) slice(b []byte) Object {
	es := r.slices.read(b)
	for v := (fields{rest: b}); v.next(); {
		if v.number == objectMeta {
			es.ObjectMeta = r.meta.read(v.bytes)
		}
	}
	return es
}

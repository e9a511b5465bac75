package kube

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headgate/headgate/pkg/source/objects"
	"github.com/headgate/headgate/pkg/source/protobuf"
)

// object is what is left of an object of the API once it is decoded: what is kept of it,
// and what a reflector asks.
type object struct {
	meta  metav1.ObjectMeta
	entry *objects.Entry
}

// GetObjectMeta is that of metav1.ObjectMetaAccessor.
func (o *object) GetObjectMeta() metav1.Object { return &o.meta }

// GetObjectKind is that of runtime.Object.
func (*object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject is that of runtime.Object. What an object refers to never changes.
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// list is what is left of a list.
type list struct {
	meta  metav1.ListMeta
	Items []*object
}

// GetListMeta is that of metav1.ListMetaAccessor.
func (l *list) GetListMeta() metav1.ListInterface { return &l.meta }

// GetObjectKind is that of runtime.Object.
func (*list) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject is that of runtime.Object. A list never changes once it is decoded.
func (l *list) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// keeper makes decoders that keep of each object of a kind what the kind says, and drop the
// rest. Of Services and EndpointSlices in protobuf the rest is never in memory as objects.
type keeper struct {
	runtime.NegotiatedSerializer
	kind objects.Kind
}

// DecoderToVersion is that of runtime.NegotiatedSerializer. A client asks for a decoder for
// each response.
func (k keeper) DecoderToVersion(d runtime.Decoder, v runtime.GroupVersioner) runtime.Decoder {
	return &decoder{k.NegotiatedSerializer.DecoderToVersion(d, v), protobuf.NewReader(k.kind.Version.WithKind(k.kind.Name)),
		k.kind, reflect.TypeOf(k.kind.New())}
}

// decoder decodes one response.
type decoder struct {
	ordinary runtime.Decoder
	reader   *protobuf.Reader
	kind     objects.Kind
	typ      reflect.Type // of the objects of the kind
}

// Decode is that of runtime.Decoder. What is neither an object nor a list of the kind, such
// as a Status, is only decoded.
func (d *decoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if l, ok := into.(*list); ok {
		return d.list(data, defaults, l)
	}
	if obj := d.reader.Object(data); obj != nil {
		return d.keep(obj), nil, nil
	}
	out, gvk, err := d.ordinary.Decode(data, defaults, into)
	if err == nil && reflect.TypeOf(out) == d.typ {
		out = d.keep(out.(objects.Object))
	}
	return out, gvk, err
}

// list decodes a list.
func (d *decoder) list(data []byte, defaults *schema.GroupVersionKind, into *list) (runtime.Object, *schema.GroupVersionKind, error) {
	if m := d.reader.List(data, func(obj protobuf.Object) { into.Items = append(into.Items, d.keep(obj)) }); m != nil {
		into.meta = *m
		return into, nil, nil
	}
	*into = list{}
	all := d.kind.List()
	out, gvk, err := d.ordinary.Decode(data, defaults, all)
	if err != nil || out != all {
		return out, gvk, err
	}
	m, err := meta.ListAccessor(all)
	if err != nil {
		return nil, gvk, err
	}
	into.meta.ResourceVersion, into.meta.Continue = m.GetResourceVersion(), m.GetContinue()
	err = meta.EachListItem(all, func(o runtime.Object) error {
		into.Items = append(into.Items, d.keep(o.(objects.Object)))
		return nil
	})
	return into, gvk, err
}

// keep drops an object but for what is kept of it. The end of what is streamed in place of
// a list is an annotation.
func (d *decoder) keep(obj objects.Object) *object {
	o := &object{entry: d.kind.Read(obj)}
	o.meta.Namespace, o.meta.Name, o.meta.ResourceVersion = o.entry.Namespace, o.entry.Name, obj.GetResourceVersion()
	if end, ok := obj.GetAnnotations()[metav1.InitialEventsAnnotationKey]; ok {
		o.meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: end}
	}
	return o
}

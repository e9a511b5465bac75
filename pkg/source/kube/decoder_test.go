package kube

import (
	"net/http"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

const (
	protobufType = runtime.ContentTypeProtobuf
	jsonType     = runtime.ContentTypeJSON
)

func serializerOf(contentType string) (serializer.CodecFactory, runtime.Serializer) {
	codecs := serializer.NewCodecFactory(newScheme())
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), contentType)
	return codecs, info.Serializer
}

func ordinaryDecoder(contentType string) runtime.Decoder {
	codecs, s := serializerOf(contentType)
	return codecs.WithoutConversion().DecoderToVersion(s, nil)
}

func newDecoder(contentType string, k objects.Kind) runtime.Decoder {
	codecs, s := serializerOf(contentType)
	return keeper{codecs.WithoutConversion(), k}.DecoderToVersion(s, nil)
}

// mustEncode returns an object or a list as a server sends it.
func mustEncode(tb testing.TB, contentType string, gv schema.GroupVersion, o runtime.Object) []byte {
	tb.Helper()
	codecs, s := serializerOf(contentType)
	b, err := runtime.Encode(codecs.EncoderForVersion(s, gv), o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func mustDecode(tb testing.TB, d runtime.Decoder, data []byte) runtime.Object {
	tb.Helper()
	o, _, err := d.Decode(data, nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// some are objects of all kinds, in the order of kinds.
func some() []objects.Object {
	svc, es := service("web", 80), endpoints("web-1", "web", "10.0.0.1", "10.0.0.2")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1"}, Spec: corev1.PodSpec{NodeName: "node-a"},
		Status: corev1.PodStatus{PodIP: "10.0.0.1"}}
	all := []objects.Object{svc, es, node("node-a", "zone-a"), cidr("kubernetes", "10.96.0.0/12"), pod}
	for _, o := range all {
		o.SetResourceVersion("17")
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
	}
	return all
}

func TestObjectsAreKeptAsTheyAreReadInFull(t *testing.T) {
	for i, k := range objects.Kinds("node-a", convert.Options{}, true) {
		for _, contentType := range []string{protobufType, jsonType} {
			t.Run(k.Name+" as "+contentType, func(t *testing.T) {
				o, want := some()[i], k.Read(some()[i])
				if want.Value == nil {
					t.Fatal("nothing is kept of it")
				}
				got := mustDecode(t, newDecoder(contentType, k), mustEncode(t, contentType, k.Version, o)).(*object)
				if got.meta.ResourceVersion != "17" || got.meta.Name != want.Name || got.meta.Namespace != want.Namespace || !reflect.DeepEqual(got.entry, want) {
					t.Errorf("got %+v of %+v, want %+v", got.entry, got.meta, want)
				}
				if got.meta.ManagedFields != nil {
					t.Errorf("has %v still", got.meta.ManagedFields)
				}
			})
		}
	}
}

func TestListsAreKeptAsTheyAreReadInFull(t *testing.T) {
	for i, k := range objects.Kinds("node-a", convert.Options{}, true) {
		for _, contentType := range []string{protobufType, jsonType} {
			t.Run(k.Name+" as "+contentType, func(t *testing.T) {
				o, all, got := some()[i], k.List(), &list{}
				_ = meta.SetList(all, []runtime.Object{o, o})
				m, _ := meta.ListAccessor(all)
				m.SetResourceVersion("18")
				m.SetContinue("more")
				out, _, err := newDecoder(contentType, k).Decode(mustEncode(t, contentType, k.Version, all), nil, got)
				if err != nil || out != got || len(got.Items) != 2 || got.meta.ResourceVersion != "18" || got.meta.Continue != "more" {
					t.Fatalf("got %+v, %v", got, err)
				}
				if want := k.Read(some()[i]); !reflect.DeepEqual(got.Items[1].entry, want) {
					t.Errorf("got %+v, want %+v", got.Items[1].entry, want)
				}
			})
		}
	}
}

func TestAListThatIsLeftToTheAPIHalfWayHasEachObjectOnce(t *testing.T) {
	k := objects.Kinds("node-a", convert.Options{}, false)[0]
	name := func(name string) []byte {
		b, _ := (&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}).Marshal()
		return b
	}
	var raw []byte
	for _, item := range [][]byte{name("web"), append(name("odd: its name comes twice"), name("db")...)} {
		raw = protowire.AppendBytes(protowire.AppendTag(raw, 2, protowire.BytesType), item)
	}
	data, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got := &list{}
	_, _, err = newDecoder(protobufType, k).Decode(append([]byte("k8s\x00"), data...), nil, got)
	if err != nil || len(got.Items) != 2 || got.Items[0].meta.Name != "web" || got.Items[1].meta.Name != "db" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestTheEndOfWhatIsStreamedInPlaceOfAListIsSeen(t *testing.T) {
	k := objects.Kinds("node-a", convert.Options{}, false)[1]
	o := bookmark(question{Kind: k, version: 19}, true)
	for _, contentType := range []string{protobufType, jsonType} {
		got := mustDecode(t, newDecoder(contentType, k), mustEncode(t, contentType, k.Version, o)).(*object)
		if got.meta.ResourceVersion != "19" || got.meta.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("%s: got %+v", contentType, got.meta)
		}
	}
}

func TestWhatIsOfNoKindIsOnlyDecoded(t *testing.T) {
	k := objects.Kinds("node-a", convert.Options{}, false)[0]
	gone := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}
	for _, contentType := range []string{protobufType, jsonType} {
		d := newDecoder(contentType, k)
		for _, into := range []runtime.Object{nil, &list{}} {
			out, _, err := d.Decode(mustEncode(t, contentType, corev1.SchemeGroupVersion, gone), nil, into)
			if got, ok := out.(*metav1.Status); err != nil || !ok || got.Code != http.StatusGone {
				t.Errorf("%s: got %+v, %v", contentType, out, err)
			}
		}
		other := mustDecode(t, d, mustEncode(t, contentType, discoveryv1.SchemeGroupVersion, endpoints("web-1", "web")))
		if _, ok := other.(*discoveryv1.EndpointSlice); !ok {
			t.Errorf("%s: got %T", contentType, other)
		}
	}
}

func TestWhatCannotBeDecodedIsRefused(t *testing.T) {
	k := objects.Kinds("node-a", convert.Options{}, false)[0]
	data := mustEncode(t, protobufType, k.Version, service("web", 80))
	d := newDecoder(protobufType, k)
	for _, into := range []runtime.Object{nil, &list{}} {
		if out, _, err := d.Decode(data[:len(data)-5], nil, into); err == nil {
			t.Errorf("got %+v", out)
		}
	}
}

package kube

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/headgate/headgate/pkg/source/convert"
	"github.com/headgate/headgate/pkg/source/objects"
)

const (
	benchServices  = 10_000
	benchEndpoints = 10 // of each Service, in one slice
)

// busyMeta is what real objects carry around.
func busyMeta(namespace, name string) metav1.ObjectMeta {
	fields := &metav1.FieldsV1{}
	fields.SetRawBytes(make([]byte, 600))
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("0b1f0000-" + name), ResourceVersion: "123456",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: fields}}}
}

func benchService(i int) *corev1.Service {
	name := fmt.Sprintf("web-%d", i)
	svc := service(name, 80, clusterIP(fmt.Sprintf("10.%d.%d.%d", 96+i>>16, i>>8&255, i&255)))
	svc.ObjectMeta = busyMeta("default", name)
	return svc
}

func benchSlice(i int) *discoveryv1.EndpointSlice {
	name := fmt.Sprintf("web-%d", i)
	es := endpoints(name+"-abcde", name)
	es.ObjectMeta = busyMeta("default", name+"-abcde")
	es.Labels = map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	for j := range benchEndpoints {
		n := i*benchEndpoints + j
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&255, n&255)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(fmt.Sprintf("worker-%d.example.com", n%500)),
			Zone:       new("zone-a"),
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-a"}}},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("web-%d-%d", i, j), UID: types.UID(name)},
		})
	}
	return es
}

// encodedObjects returns Services and slices as they come out of the connection.
func encodedObjects(b *testing.B) (encoded [2][][]byte) {
	for i := range benchServices {
		encoded[0] = append(encoded[0], mustEncode(b, protobufType, corev1.SchemeGroupVersion, benchService(i)))
		encoded[1] = append(encoded[1], mustEncode(b, protobufType, discoveryv1.SchemeGroupVersion, benchSlice(i)))
	}
	return encoded
}

// fillStores puts all objects through decoders into stores, and returns how many there were.
func fillStores(b *testing.B, encoded [2][][]byte, stores ...reflected) (n int) {
	for i, s := range stores {
		var all []any
		d := newDecoder(protobufType, s.Kind)
		for _, data := range encoded[i] {
			e, _ := s.Transformer()(mustDecode(b, d, data))
			all = append(all, e)
		}
		_ = s.Replace(all, "")
		n += len(all)
	}
	return n
}

// BenchmarkColdStart is 10,000 Services with ten endpoints each, from protobuf to
// the first update, beside decoding alone as the API does it.
func BenchmarkColdStart(b *testing.B) {
	encoded := encodedObjects(b)
	b.Run("decode as the API does", func(b *testing.B) {
		b.ReportAllocs()
		d, n := ordinaryDecoder(protobufType), 0
		for b.Loop() {
			for _, data := range slices.Concat(encoded[0], encoded[1]) {
				mustDecode(b, d, data)
				n++
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/object")
	})
	b.Run("decode, convert, emit", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			out, svcs, ess := benchStores()
			n += fillStores(b, encoded, svcs, ess)
			if u, ok := out.Next(); !ok || len(u.Services) != benchServices || len(u.Slices) != benchServices {
				b.Fatal("no update with everything")
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/object")
	})
	b.Run("memory kept", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			out, svcs, ess := benchStores()
			n := fillStores(b, encoded, svcs, ess)
			u, _ := out.Next()
			b.ReportMetric(float64(heap()-before)/float64(n), "B/object")
			runtime.KeepAlive([]any{u, svcs, ess})
		}
	})
}

func benchStores() (*objects.Batch, reflected, reflected) {
	out := objects.NewBatch("node-a", objects.ServiceKind, objects.SliceKind)
	kinds := objects.Kinds("node-a", convert.Options{}, false)
	return out, reflected{objects.NewStore(kinds[0], out)}, reflected{objects.NewStore(kinds[1], out)}
}

// heap returns the bytes that are alive.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkOneChange is one endpoint that changes among all of them, from
// protobuf to the update.
func BenchmarkOneChange(b *testing.B) {
	out, svcs, ess := benchStores()
	fillStores(b, encodedObjects(b), svcs, ess)
	out.Next()
	var versions [2][]byte
	for i := range versions {
		es := benchSlice(0)
		es.Endpoints[0].Conditions.Ready = new(i == 1)
		versions[i] = mustEncode(b, protobufType, discoveryv1.SchemeGroupVersion, es)
	}
	d := newDecoder(protobufType, ess.Kind)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = ess.Update(mustDecode(b, d, versions[i%2]))
		if u, ok := out.Next(); !ok || len(u.Slices) != 1 {
			b.Fatal("no update with the change")
		}
	}
}

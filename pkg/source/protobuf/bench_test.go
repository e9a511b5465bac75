package protobuf_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/headgate/headgate/pkg/source/objects"
	reader "github.com/headgate/headgate/pkg/source/protobuf"
)

// busyMeta is what controllers write around a name.
func busyMeta(name, owner string) metav1.ObjectMeta {
	fields := &metav1.FieldsV1{}
	fields.SetRawBytes(make([]byte, 600))
	return metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("0b1f0000-cafe-" + name), ResourceVersion: "123456", CreationTimestamp: metav1.Unix(1e9, 0),
		Labels:          map[string]string{discoveryv1.LabelServiceName: owner, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "app": owner},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: owner, UID: types.UID(owner), Controller: new(true)}},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: fields}},
	}
}

func busyService() *corev1.Service {
	policy := corev1.ServiceInternalTrafficPolicyCluster
	return &corev1.Service{ObjectMeta: busyMeta("web", "web"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		InternalTrafficPolicy: &policy, SessionAffinity: corev1.ServiceAffinityNone, Selector: map[string]string{"app": "web"},
		Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
	}}
}

func busySlice(endpoints int) *discoveryv1.EndpointSlice {
	tcp := corev1.ProtocolTCP
	es := &discoveryv1.EndpointSlice{
		ObjectMeta: busyMeta("web-abcde", "web"), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Protocol: &tcp, Port: new(int32(8080))}},
	}
	for i := range endpoints {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.128.%d.%d", i>>8, i&255)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(fmt.Sprintf("worker-%d.example.com", i%500)),
			Zone:       new("zone-a"),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("web-%d", i), UID: "0b1f0000-cafe"},
		})
	}
	return es
}

// BenchmarkRead is an object from protobuf to what is kept of it, read in full and read here.
func BenchmarkRead(b *testing.B) {
	for _, bench := range []struct {
		name string
		kind objects.Kind
		obj  objects.Object
	}{
		{"Service", kinds[0], busyService()},
		{"slice of 10", kinds[1], busySlice(10)},
		{"slice of 100", kinds[1], busySlice(100)},
	} {
		data := mustEncode(b, gvk(bench.kind), bench.obj)
		b.Run(bench.name+"/all", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				obj, _, err := api.Decode(data, nil, nil)
				if err != nil {
					b.Fatal(err)
				}
				bench.kind.Read(obj.(objects.Object))
			}
		})
		b.Run(bench.name+"/what matters", func(b *testing.B) {
			b.ReportAllocs()
			r := reader.NewReader(gvk(bench.kind))
			for b.Loop() {
				bench.kind.Read(r.Object(data))
			}
		})
		b.Run(bench.name+"/decoding alone", func(b *testing.B) {
			b.ReportAllocs()
			r := reader.NewReader(gvk(bench.kind))
			for b.Loop() {
				r.Object(data)
			}
		})
	}
}

// BenchmarkList is a list of 10,000 slices of ten endpoints.
func BenchmarkList(b *testing.B) {
	all := make([]objects.Object, 10_000)
	for i := range all {
		all[i] = busySlice(10)
	}
	k := kinds[1]
	data := mustEncodeList(b, k, all...)
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			list, _, err := api.Decode(data, nil, nil)
			if err != nil {
				b.Fatal(err)
			}
			_ = meta.EachListItem(list, func(o runtime.Object) error { k.Read(o.(objects.Object)); return nil })
		}
	})
	b.Run("what matters", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			reader.NewReader(gvk(k)).List(data, func(o reader.Object) { k.Read(o) })
		}
	})
}

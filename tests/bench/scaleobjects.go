package main

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// shape is how many Services a cluster has, and how many endpoints in how many slices each.
type shape struct {
	services, slices, endpoints int // endpoints in a slice
}

func (c shape) String() string {
	return fmt.Sprintf("%s × %d", count(c.services), c.slices*c.endpoints)
}

// key is the shape in the names of figures.
func (c shape) key() string { return fmt.Sprintf("scale/%dx%d/", c.services, c.slices*c.endpoints) }

// service returns a Service of the cluster.
func (c shape) service(i int) *corev1.Service {
	return apiService(serviceName(i).Name, nth(serviceNet4, i+256))
}

// slice returns a slice of a Service of the cluster.
func (c shape) slice(service, number int) *discoveryv1.EndpointSlice {
	return apiSlice(serviceName(service).Name, number, nth(backendNet4, (service*c.slices+number)*c.endpoints+1), c.endpoints)
}

// load gives an API server all objects of the cluster.
func (c shape) load(a *apiServer) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}
	if err := a.nodes.load(node); err != nil {
		return err
	}
	for i := range c.services {
		if err := a.services.load(c.service(i)); err != nil {
			return err
		}
		for k := range c.slices {
			if err := a.slices.load(c.slice(i, k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// meta is what controllers and the API server write of every object, much of which nothing
// here reads.
func meta(name string, labels map[string]string) metav1.ObjectMeta {
	fields := `{"f:metadata":{"f:labels":{".":{},` + strings.Repeat(`"f:app.kubernetes.io/name":{},`, 6) + `"f:x":{}}}}`
	return metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID("8c2f9c33-7b7e-4c55-9d0f-" + name), Generation: 1, Labels: labels,
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}},
	}
}

// apiService is a Service as the API server keeps it.
func apiService(name string, clusterIP netip.Addr) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: meta(name, map[string]string{"app": name}),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP.String(), ClusterIPs: []string{clusterIP.String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster), SessionAffinity: corev1.ServiceAffinityNone,
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: servicePort}},
		},
	}
}

// apiSlice is a slice as the EndpointSlice controller writes it.
func apiSlice(service string, number int, first netip.Addr, endpoints int) *discoveryv1.EndpointSlice {
	es := &discoveryv1.EndpointSlice{
		ObjectMeta: meta(fmt.Sprintf("%s-%05d", service, number), map[string]string{
			"app": service, discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(backendPort)), Protocol: new(corev1.ProtocolTCP)}},
	}
	es.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service, UID: types.UID("5e1ab1a5-" + service),
		Controller: new(true), BlockOwnerDeletion: new(true)}}
	for k := range endpoints {
		pod := fmt.Sprintf("%s-%d-%d", service, number, k)
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{first.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(fmt.Sprintf("node-%d", k%50)),
			Zone:       new("zone-b"),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: pod, UID: types.UID("d3b07384-" + pod)},
		})
		first = first.Next()
	}
	return es
}

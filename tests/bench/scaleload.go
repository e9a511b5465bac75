package main

import (
	"fmt"
	"net/http"
	"net/netip"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Paths of the API.
const (
	servicesPath = "/api/v1/namespaces/default/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
)

// loaders is how many requests are on their way at a time.
const loaders = 16

// load writes the Services and their slices.
func (s *scaled) load() error {
	if err := s.step("write %s Services and slices to the API server", count(s.plan.big)); err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}}}
	if err := s.post("/api/v1/nodes", node); err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(loaders)
	for i := range s.plan.big {
		group.Go(func() error {
			if err := s.post(servicesPath, apiService(serviceName(i).Name, nth(serviceNet4, i+256))); err != nil {
				return err
			}
			return s.post(slicesPath, apiSlice(serviceName(i).Name, 0, nth(backendNet4, i*endpointsEach+1), endpointsEach))
		})
	}
	return group.Wait()
}

func (s *scaled) post(path string, object any) error {
	return s.cluster.Client.Do(s.ctx, http.MethodPost, path, "application/json", object, nil)
}

// apiService is a Service without selector, so that its slices are ours.
func apiService(name string, clusterIP netip.Addr) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.ServiceSpec{ClusterIP: clusterIP.String(), Ports: []corev1.ServicePort{{Name: "http", Port: servicePort}}},
	}
}

// apiSlice is a slice as the EndpointSlice controller writes it.
func apiSlice(service string, number int, first netip.Addr, endpoints int) *discoveryv1.EndpointSlice {
	es := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%05d", service, number), Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(backendPort)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for k := range endpoints {
		pod := fmt.Sprintf("%s-%d-%d", service, number, k)
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{first.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(fmt.Sprintf("node-%d", k%50)),
			Zone:       new("zone-b"),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: pod, UID: types.UID(pod)},
		})
		first = first.Next()
	}
	return es
}

// changeEndpoint gives the last endpoint of a slice another address.
func (s *scaled) changeEndpoint(es *discoveryv1.EndpointSlice, to netip.Addr) error {
	es.Endpoints[len(es.Endpoints)-1].Addresses = []string{to.String()}
	return s.cluster.Client.Do(s.ctx, http.MethodPut, slicesPath+"/"+es.Name, "application/json", es, nil)
}

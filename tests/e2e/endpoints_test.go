package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestPodsOfTheZoneArePreferredAsLongAsThereAreSome(t *testing.T) {
	s := mustStage(t)
	s.startAgent()
	zone := corev1.ServiceTrafficDistributionPreferSameZone
	at := s.service("web", func(svc *corev1.Service) { svc.Spec.TrafficDistribution = &zone })
	s.serve(0, "near", 8080)
	s.serve(1, "far", 8080)
	near := podSpec{name: "near", app: "web", addrs: podAddrs(0), ready: true}
	far := podSpec{name: "far", app: "web", node: otherNode, addrs: podAddrs(1), ready: true}
	s.pod(near)
	s.pod(far)
	for i := range at {
		s.awaitBackends(at[i], at8080(podAddrs(0)[i])...)
		s.wantAnswers(at[i], "near")
	}
	near.ready = false
	s.podStatus(near)
	for i := range at {
		s.awaitBackends(at[i], at8080(podAddrs(1)[i])...)
	}
	near.ready = true
	s.podStatus(near)
	for i := range at {
		s.awaitBackends(at[i], at8080(podAddrs(0)[i])...)
	}
}

func TestEndpointsThatAreMirroredAreBackends(t *testing.T) {
	s := mustStage(t)
	s.startAgent()
	at := s.service("old", withoutSelector)[0]
	s.serve(2, "mirrored", 8080)
	path := s.in(core, "endpoints")
	s.do(http.MethodPost, path, asJSON, map[string]any{
		"metadata": map[string]any{"name": "old"},
		"subsets": []map[string]any{{
			"addresses": []map[string]any{{"ip": podAddrs(2)[0]}},
			"ports":     []map[string]any{{"name": "http", "port": 8080}},
		}},
	}, nil)
	s.awaitBackends(at, at8080(podAddrs(2)[0])...)
	s.wantAnswers(at, "mirrored")
	s.do(http.MethodDelete, path+"/old", "", nil, nil)
	s.awaitBackends(at)
}

func TestPodsThatNeedSeveralSlicesAreAllBackends(t *testing.T) {
	s := mustStage(t)
	s.startAgent()
	const many = 250
	at := s.service("many", func(svc *corev1.Service) {
		single := corev1.IPFamilyPolicySingleStack
		svc.Spec.IPFamilyPolicy = &single
	})[0]
	for i := range many {
		s.pod(podSpec{name: fmt.Sprintf("many-%d", i), app: "many", addrs: []netip.Addr{crowdAddr(i)}, ready: true})
	}
	s.awaitBackends(at, crowded(many)...)
	var list discoveryv1.EndpointSliceList
	s.do(http.MethodGet, s.in(discovery, "endpointslices")+"?labelSelector="+discoveryv1.LabelServiceName+"=many", "", nil, &list)
	if n := len(list.Items); n < 3 {
		t.Errorf("the controller made %d slices of %d endpoints, so this shows nothing of several slices", n, many)
	}
	s.wantAnswers(at, "crowd")
	s.remove("many-0")
	s.awaitBackends(at, crowded(many)[1:]...)
}

func TestANamedPortIsAnotherNumberInAnotherPod(t *testing.T) {
	s := mustStage(t)
	s.startAgent()
	at := s.service("ports", func(svc *corev1.Service) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "admin", Port: 81, TargetPort: intstr.FromInt32(9100)})
	})[0]
	s.serve(0, "old", 8080)
	s.serve(1, "new", 9090)
	s.pod(podSpec{name: "old", app: "ports", addrs: podAddrs(0), ready: true})
	s.pod(podSpec{name: "new", app: "ports", addrs: podAddrs(1), ready: true, port: 9090})
	old, renewed := podAddrs(0)[0], podAddrs(1)[0]
	s.awaitBackends(at, netip.AddrPortFrom(old, 8080).String(), netip.AddrPortFrom(renewed, 9090).String())
	s.awaitBackends(netip.AddrPortFrom(at.Addr(), 81), netip.AddrPortFrom(old, 9100).String(), netip.AddrPortFrom(renewed, 9100).String())
	s.wantAnswers(at, "new", "old")
}

func TestFiveThousandEndpointsOfOneService(t *testing.T) {
	s := mustStage(t)
	s.startAgent()
	const endpoints, each = 5000, 100
	at := s.service("huge", withoutSelector)[0]
	for i := 0; i < endpoints; i += each {
		s.put(slice("huge", fmt.Sprintf("huge-%d", i), crowdAddr(i), each))
	}
	s.awaitBackends(at, crowded(endpoints)...)
	end := s.traffic(at)
	// One slice loses an endpoint, another all of them, and all come back.
	s.put(slice("huge", "huge-0", crowdAddr(0), each-1))
	s.do(http.MethodDelete, s.in(discovery, "endpointslices", "huge-4900"), "", nil, nil)
	all := crowded(endpoints)
	s.awaitBackends(at, append(append([]string{}, all[:99]...), all[100:4900]...)...)
	s.put(slice("huge", "huge-0", crowdAddr(0), each))
	s.put(slice("huge", "huge-4900", crowdAddr(4900), each))
	s.awaitBackends(at, all...)
	end()
}

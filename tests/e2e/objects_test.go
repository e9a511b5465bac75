package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headgate/headgate/pkg/traffic/serve"
	"github.com/headgate/headgate/tests/controlplane"
)

// Content types of requests.
const (
	asJSON  = "application/json"
	asMerge = "application/merge-patch+json"
)

// do sends a request to the API server; it must succeed.
func (s *stage) do(method, path, contentType string, body, into any) {
	s.tb.Helper()
	if err := s.world.cluster.Client.Do(s.ctx, method, path, contentType, body, into); err != nil {
		s.tb.Fatal(err)
	}
}

// in returns the path of a resource in the namespace of the test.
func (s *stage) in(group, resource string, rest ...string) string {
	return group + "/namespaces/" + s.namespace + "/" + strings.Join(append([]string{resource}, rest...), "/")
}

const (
	core      = "/api/v1"
	discovery = "/apis/discovery.k8s.io/v1"
)

// makeNamespace makes the namespace of the test, and the Nodes where they are
// not there yet. What is in it goes with the test.
func (s *stage) makeNamespace() {
	s.tb.Helper()
	for name, zone := range map[string]string{thisNode: "zone-a", otherNode: "zone-b"} {
		s.makeNode(name, zone)
	}
	s.do(http.MethodPost, core+"/namespaces", asJSON, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, nil)
	s.tb.Cleanup(func() {
		for _, path := range []string{s.in(core, "services"), s.in(core, "pods") + "?gracePeriodSeconds=0", s.in(discovery, "endpointslices")} {
			s.do(http.MethodDelete, path, "", nil, nil)
		}
	})
}

func (s *stage) makeNode(name, zone string) {
	s.tb.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	err := s.world.cluster.Client.Do(s.ctx, http.MethodPost, core+"/nodes", asJSON, node, nil)
	var status *controlplane.StatusError
	if errors.As(err, &status) && status.Code == http.StatusConflict {
		return // from an earlier test
	}
	if err != nil {
		s.tb.Fatal(err)
	}
	ready := corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}},
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
	}
	s.do(http.MethodPatch, core+"/nodes/"+name+"/status", asMerge, map[string]any{"status": ready}, nil)
}

// service makes a Service for the pods with its name as label "app", and returns
// where it is, IPv4 first. edit may be nil.
func (s *stage) service(name string, edit func(*corev1.Service)) []netip.AddrPort {
	s.tb.Helper()
	dual := corev1.IPFamilyPolicyPreferDualStack
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name}, IPFamilyPolicy: &dual,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}
	if edit != nil {
		edit(svc)
	}
	s.do(http.MethodPost, s.in(core, "services"), asJSON, svc, svc)
	var at []netip.AddrPort
	for _, ip := range svc.Spec.ClusterIPs {
		at = append(at, netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(svc.Spec.Ports[0].Port)))
	}
	return at
}

// withoutSelector leaves the endpoints of a Service to the test, for IPv4 alone.
func withoutSelector(svc *corev1.Service) {
	single := corev1.IPFamilyPolicySingleStack
	svc.Spec.Selector, svc.Spec.IPFamilyPolicy = nil, &single
	svc.Spec.Ports[0].TargetPort = intstr.FromInt32(8080)
}

// podSpec is a Pod as the tests need it.
type podSpec struct {
	name  string
	app   string
	node  string // "" for this node
	port  int32  // that the container calls http, 0 for 8080
	addrs []netip.Addr
	ready bool
}

// pod makes a Pod object, with the status that a kubelet would write.
func (s *stage) pod(p podSpec) {
	s.tb.Helper()
	if p.node == "" {
		p.node = thisNode
	}
	if p.port == 0 {
		p.port = 8080
	}
	now := int64(30)
	s.do(http.MethodPost, s.in(core, "pods"), asJSON, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: map[string]string{"app": p.app}},
		Spec: corev1.PodSpec{NodeName: p.node, TerminationGracePeriodSeconds: &now, Containers: []corev1.Container{{
			Name: "server", Image: "none", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: p.port}}}}},
	}, nil)
	s.podStatus(p)
}

// podStatus writes where a Pod is and whether it is ready.
func (s *stage) podStatus(p podSpec) {
	s.tb.Helper()
	ready := corev1.ConditionFalse
	if p.ready {
		ready = corev1.ConditionTrue
	}
	status := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}
	for _, a := range p.addrs {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	status.PodIP = p.addrs[0].String()
	s.do(http.MethodPatch, s.in(core, "pods", p.name, "status"), asMerge, map[string]any{"status": status}, nil)
}

// terminate has a Pod end: it stays, as terminating, until it is removed.
func (s *stage) terminate(name string) {
	s.tb.Helper()
	s.do(http.MethodDelete, s.in(core, "pods", name)+"?gracePeriodSeconds=30", "", nil, nil)
}

// remove removes a Pod at once, as the kubelet does when its containers are gone.
func (s *stage) remove(name string) {
	s.tb.Helper()
	s.do(http.MethodDelete, s.in(core, "pods", name)+"?gracePeriodSeconds=0", "", nil, nil)
}

// serve starts the server of a pod in one of the namespaces.
func (s *stage) serve(i int, name string, port uint16) *serve.Server {
	s.tb.Helper()
	var endpoints []serve.Endpoint
	for _, a := range podAddrs(i) {
		endpoints = append(endpoints, serve.Endpoint{Name: name, Addr: netip.AddrPortFrom(a, port)})
	}
	server, err := serve.Start(endpoints, serve.Options{Loops: 1, Within: s.world.topology.Namespace(podName(i)).Do})
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { server.Close() })
	return server
}

// runningPod starts a server and makes a ready Pod of it, named for both.
func (s *stage) runningPod(app string, i int) (podSpec, *serve.Server) {
	s.tb.Helper()
	p := podSpec{name: fmt.Sprintf("%s-%d", app, i), app: app, addrs: podAddrs(i), ready: true}
	server := s.serve(i, p.name, 8080)
	s.pod(p)
	return p, server
}

// slice returns an EndpointSlice of a Service without selector, with endpoints
// from an address on, all at port 8080.
func slice(service, name string, first netip.Addr, endpoints int) *discoveryv1.EndpointSlice {
	port, portName := int32(8080), "http"
	es := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
	}
	for range endpoints {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{first.String()}})
		first = first.Next()
	}
	return es
}

// put makes an EndpointSlice, or replaces the one of its name.
func (s *stage) put(es *discoveryv1.EndpointSlice) {
	s.tb.Helper()
	err := s.world.cluster.Client.Do(s.ctx, http.MethodPut, s.in(discovery, "endpointslices", es.Name), asJSON, es, nil)
	var status *controlplane.StatusError
	if errors.As(err, &status) && status.Code == http.StatusNotFound {
		s.do(http.MethodPost, s.in(discovery, "endpointslices"), asJSON, es, nil)
		return
	}
	if err != nil {
		s.tb.Fatal(err)
	}
}

// crowdAddr returns an address of the crowd.
func crowdAddr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 250, byte((n + 1) >> 8), byte(n + 1)})
}

// at8080 are addresses as backends.
func at8080(addrs ...netip.Addr) (out []string) {
	for _, a := range addrs {
		out = append(out, netip.AddrPortFrom(a, 8080).String())
	}
	return out
}

// crowded are the backends of n addresses of the crowd.
func crowded(n int) (out []string) {
	for i := range n {
		out = append(out, at8080(crowdAddr(i))...)
	}
	return out
}

// readMetrics returns the values of Prometheus' text format by name and labels.
func readMetrics(text io.Reader) (map[string]string, error) {
	out := map[string]string{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		if at := strings.LastIndexByte(lines.Text(), ' '); at > 0 && lines.Text()[0] != '#' {
			out[lines.Text()[:at]] = lines.Text()[at+1:]
		}
	}
	return out, lines.Err()
}

// triggered says in a slice when its last change happened in the cluster.
func triggered(es *discoveryv1.EndpointSlice, at time.Time) *discoveryv1.EndpointSlice {
	es.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at.UTC().Format(time.RFC3339Nano)}
	return es
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/headgate/headgate/pkg/traffic/serve"
)

// object is one of Kubernetes' objects, as JSON.
type object = map[string]any

// Content types of requests.
const (
	asJSON  = "application/json"
	asMerge = "application/merge-patch+json"
)

// service is one with a backend on each node.
type service struct {
	name     string
	nodePort int
	balancer string // address of the load balancer
	health   int    // its health-check NodePort, 0 for policy Cluster
	port     uint16 // of its backends

	ips      []netip.Addr // ClusterIPs
	backends []*instance  // by node
	version  int          // of what they were replaced by
}

// instance is a pod that serves.
type instance struct {
	node  int
	addrs []netip.Addr
	*serve.Server
}

func newServices() (web, held, local, leaving *service) {
	return &service{name: "web", nodePort: 30080, balancer: "203.0.113.10", port: 8080},
		&service{name: "held", nodePort: 30081, balancer: "203.0.113.11", port: 8081},
		&service{name: "local", nodePort: 30082, balancer: "203.0.113.12", port: 8082, health: 30090},
		&service{name: "leaving", nodePort: 30083, balancer: "203.0.113.13", port: 8083}
}

// do sends a request to the API server.
func (w *world) do(ctx context.Context, method, path, contentType string, body, into any) error {
	return w.cluster.Client.Do(ctx, method, path, contentType, body, into)
}

// makeNodes makes the Node objects.
func (w *world) makeNodes(ctx context.Context) error {
	for i, name := range nodeNames {
		if err := w.do(ctx, http.MethodPost, "/api/v1/nodes", asJSON, object{"metadata": object{"name": name}}, nil); err != nil {
			return err
		}
		now := time.Now().UTC().Format(time.RFC3339)
		list := []object{}
		for _, a := range nodeAddrs(i) {
			list = append(list, object{"type": "InternalIP", "address": a})
		}
		status := object{"status": object{"addresses": list, "conditions": []object{
			{"type": "Ready", "status": "True", "lastHeartbeatTime": now, "lastTransitionTime": now},
		}}}
		if err := w.do(ctx, http.MethodPatch, "/api/v1/nodes/"+name+"/status", asMerge, status, nil); err != nil {
			return err
		}
	}
	return nil
}

// make makes the Service, and a backend on each node.
func (s *service) make(ctx context.Context, w *world) error {
	ports := []object{}
	for _, protocol := range []string{"TCP", "UDP"} {
		ports = append(ports, object{"name": map[string]string{"TCP": "t", "UDP": "u"}[protocol], "protocol": protocol, "port": 80, "targetPort": s.port, "nodePort": s.nodePort})
	}
	spec := object{"type": "LoadBalancer", "ports": ports, "ipFamilyPolicy": "RequireDualStack"}
	if s.health > 0 {
		spec["externalTrafficPolicy"], spec["healthCheckNodePort"] = "Local", s.health
	}
	var made struct {
		Spec struct {
			ClusterIPs []netip.Addr `json:"clusterIPs"`
		} `json:"spec"`
	}
	const services = "/api/v1/namespaces/default/services"
	if err := w.do(ctx, http.MethodPost, services, asJSON, object{"metadata": object{"name": s.name}, "spec": spec}, &made); err != nil {
		return err
	}
	s.ips = made.Spec.ClusterIPs
	status := object{"status": object{"loadBalancer": object{"ingress": []object{{"ip": s.balancer, "ipMode": "VIP"}}}}}
	if err := w.do(ctx, http.MethodPatch, services+"/"+s.name+"/status", asMerge, status, nil); err != nil {
		return err
	}
	var err error
	if s.backends, err = s.start(w); err != nil {
		return err
	}
	for _, family := range families {
		if err := w.do(ctx, http.MethodPost, slicesPath, asJSON, s.slice(family, s.backends, nil), nil); err != nil {
			return err
		}
	}
	return nil
}

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"

// families of addresses, by their place among those of a machine.
var families = []int{0, 1}

// start starts a backend of the next version on each node.
func (s *service) start(w *world) (all []*instance, err error) {
	s.version++
	for i, node := range nodeNames {
		// 20 addresses for each Service, taken in turn: those of the version before are in use.
		b := &instance{node: i, addrs: podAddrs(i, 130+int(s.port-8080)*20+s.version%20)}
		var at []serve.Endpoint
		for _, a := range b.addrs {
			at = append(at, serve.Endpoint{Name: fmt.Sprintf("%s-%d-%s", s.name, s.version, node[5:]), Addr: netip.AddrPortFrom(a, s.port)})
		}
		if b.Server, err = serve.Start(at, serve.Options{Loops: 1, Within: w.namespace(serverOf(node)).Do}); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// slice is the endpoints of a family: some are ready, and some end and serve meanwhile.
func (s *service) slice(family int, ready, ending []*instance) object {
	endpoints := []object{}
	for _, of := range []struct {
		instances []*instance
		ends      bool
	}{{ready, false}, {ending, true}} {
		for _, b := range of.instances {
			endpoints = append(endpoints, object{
				"addresses": []netip.Addr{b.addrs[family]}, "nodeName": nodeNames[b.node],
				"conditions": object{"ready": !of.ends, "serving": true, "terminating": of.ends},
			})
		}
	}
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": []string{"IPv4", "IPv6"}[family],
		"metadata": object{"name": fmt.Sprintf("%s-%d", s.name, family), "labels": object{"kubernetes.io/service-name": s.name}},
		"ports":    []object{{"name": "t", "protocol": "TCP", "port": s.port}, {"name": "u", "protocol": "UDP", "port": s.port}}, "endpoints": endpoints,
	}
}

func (s *service) put(ctx context.Context, w *world, ready, ending []*instance) error {
	for _, family := range families {
		if err := w.do(ctx, http.MethodPut, fmt.Sprintf("%s/%s-%d", slicesPath, s.name, family), asJSON, s.slice(family, ready, ending), nil); err != nil {
			return err
		}
	}
	return nil
}

// afterTime is how long a backend serves after it was removed: proxies have heard of it by then,
// on a busy machine, too.
const afterTime = 5 * time.Second

// replace replaces every backend at once.
func (s *service) replace(ctx context.Context, w *world) error {
	old := s.backends
	renewed, err := s.start(w)
	if err != nil {
		return err
	}
	s.backends = renewed
	if err := s.put(ctx, w, renewed, nil); err != nil {
		return err
	}
	time.Sleep(afterTime)
	return closeAll(old)
}

// close ends the backends.
func (s *service) close() { _ = closeAll(s.backends) }

func closeAll(backends []*instance) error {
	var errs []error
	for _, b := range backends {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

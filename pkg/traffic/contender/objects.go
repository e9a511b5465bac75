package contender

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// object is one of Kubernetes' objects, as JSON would have it. An API server's
// defaults are filled in, so that it can be shown to who expects them.
type object map[string]any

// text is the object as JSON. There is nothing in it that could fail.
func (o object) text() []byte {
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Appendf(nil, "%q", err)
	}
	return text
}

func meta(name string) object {
	return object{"name": name, "namespace": "default", "uid": name, "resourceVersion": firstVersion}
}

func nodeObject(name string, addrs []netip.Addr) object {
	var list []object
	for _, a := range addrs {
		list = append(list, object{"type": "InternalIP", "address": a})
	}
	about := meta(name)
	delete(about, "namespace")
	return object{"apiVersion": "v1", "kind": "Node", "metadata": about, "status": object{"addresses": list}}
}

func familyName(a netip.Addr) string { return map[bool]string{false: "IPv4", true: "IPv6"}[a.Is6()] }

// serviceObject is a Service. For clients from elsewhere it has the address of a
// load balancer, for others a ClusterIP.
func serviceObject(s service, outside bool) object {
	spec := object{
		"type": "ClusterIP", "ipFamilies": []string{familyName(s.Addr.Addr())}, "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
		"internalTrafficPolicy": "Cluster",
		"ports":                 []object{{"protocol": strings.ToUpper(s.Protocol), "port": s.Addr.Port()}},
	}
	clusterIP, status := s.Addr.Addr(), object{}
	if outside {
		b := clusterIP.AsSlice()
		clusterIP = nth(netsOf(clusterIP.Is6()).cluster.Addr(), int(b[len(b)-2])<<8|int(b[len(b)-1]))
		spec["type"], spec["externalTrafficPolicy"], spec["allocateLoadBalancerNodePorts"] = "LoadBalancer", "Cluster", false
		status["loadBalancer"] = object{"ingress": []object{{"ip": s.Addr.Addr(), "ipMode": "VIP"}}}
	}
	spec["clusterIP"], spec["clusterIPs"] = clusterIP, []netip.Addr{clusterIP}
	return object{"apiVersion": "v1", "kind": "Service", "metadata": meta(s.name), "spec": spec, "status": status}
}

// sliceObject is the endpoints of a Service.
func sliceObject(s service, members []member, node string) object {
	endpoints := []object{}
	for _, m := range members {
		if m.is == gone {
			continue
		}
		endpoints = append(endpoints, object{
			"addresses": []netip.Addr{m.addr.Addr()}, "nodeName": node,
			"conditions": object{"ready": m.is == ready, "serving": true, "terminating": m.is == terminating},
		})
	}
	about := meta(s.name)
	about["labels"] = object{"kubernetes.io/service-name": s.name}
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": about, "addressType": familyName(s.Addr.Addr()),
		"ports": []object{{"name": "", "protocol": strings.ToUpper(s.Protocol), "port": members[0].addr.Port()}}, "endpoints": endpoints,
	}
}

// allReady are the endpoints of a Service that does not change.
func allReady(s service) []member {
	var members []member
	for _, e := range s.Endpoints {
		members = append(members, member{addr: e})
	}
	return members
}

// manifest returns a Service with its endpoints, as JSON.
func manifest(s service, members []member, node string, outside bool) string {
	return string(serviceObject(s, outside).text()) + "\n" + string(sliceObject(s, members, node).text()) + "\n"
}

// manifests returns a Node and Services as a stream of JSON.
func manifests(services []service, node string, addrs []netip.Addr, outside bool) string {
	var b strings.Builder
	b.Write(nodeObject(node, addrs).text())
	b.WriteByte('\n')
	for _, s := range services {
		b.WriteString(manifest(s, allReady(s), node, outside))
	}
	return b.String()
}

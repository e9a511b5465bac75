package hostile_test

import (
	"fmt"
	"net/netip"
	"strings"
)

// object is a Service with the slice of its endpoints. Tenants may write all of it.
type object struct {
	namespace, name string
	created         string // the year
	annotations     map[string]string
	spec            []string // further lines
	status          string   // address of a load balancer
	ports           []string // as in YAML
	endpoints       []netip.Addr
	elsewhere       netip.Addr // the endpoint that is on another node, in another zone
	targets         []string   // ports of the slice, as in YAML
}

// yaml is the object as a tenant writes it to a file.
func (o object) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n  namespace: %s\n  uid: %s-%s\n", o.name, o.namespace, o.namespace, o.name)
	if o.created != "" {
		fmt.Fprintf(&b, "  creationTimestamp: %q\n", o.created+"-01-01T00:00:00Z")
	}
	if len(o.annotations) > 0 {
		b.WriteString("  annotations:\n")
	}
	for name, value := range o.annotations {
		fmt.Fprintf(&b, "    %s: %q\n", name, value)
	}
	b.WriteString("spec:\n")
	for _, line := range append(o.spec, "ports:") {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	for _, port := range o.ports {
		fmt.Fprintf(&b, "  - %s\n", port)
	}
	if o.status != "" {
		fmt.Fprintf(&b, "status: {loadBalancer: {ingress: [{ip: %s}]}}\n", o.status)
	}
	fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-1, namespace: %s, labels: {kubernetes.io/service-name: %s}}\n", o.name, o.namespace, o.name)
	fmt.Fprintf(&b, "addressType: IPv4\nports: [%s]\nendpoints:\n", strings.Join(o.targets, ", "))
	for i, e := range o.endpoints {
		where := map[bool]string{true: "nodeName: node-b, zone: zone-b", false: "nodeName: node-a, zone: zone-a"}[e == o.elsewhere]
		fmt.Fprintf(&b, "- {addresses: [%q], conditions: {ready: true}, targetRef: {kind: Pod, name: pod-%d}, %s}\n", e, i, where)
	}
	return b.String()
}

// webPorts and webTargets are the ports of a Service of both protocols.
var (
	webPorts   = []string{"{name: t, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30080}", "{name: u, protocol: UDP, port: 80, targetPort: 8080, nodePort: 30080}"}
	webTargets = []string{"{name: t, protocol: TCP, port: 8080}", "{name: u, protocol: UDP, port: 8080}"}
)

// victim is the Service that everybody connects to.
var victim = object{
	namespace: "victim", name: "web", created: "2025", status: loadBalancer.Addr().String(),
	spec:  []string{"type: LoadBalancer", "clusterIP: 10.96.0.10", "clusterIPs: [10.96.0.10]"},
	ports: webPorts, targets: webTargets, endpoints: []netip.Addr{web1Addr, web2Addr},
}

// datagrams is another one of the victim's, for datagrams that come in fragments.
var datagrams = object{
	namespace: "victim", name: "datagrams", created: "2025",
	spec:  []string{"type: NodePort", "clusterIP: 10.96.0.11", "clusterIPs: [10.96.0.11]"},
	ports: []string{"{name: u, protocol: UDP, port: 80, targetPort: 9999, nodePort: 30081}"}, targets: []string{"{name: u, protocol: UDP, port: 9999}"},
	endpoints: []netip.Addr{web1Addr},
}

// kubernetes is the Service of the API server, which runs on the node.
var kubernetes = object{
	namespace: "default", name: "kubernetes", created: "2024", spec: []string{"clusterIP: 10.96.0.1", "clusterIPs: [10.96.0.1]"},
	ports: []string{"{name: https, protocol: TCP, port: 443, targetPort: 6443}"}, targets: []string{"{name: https, protocol: TCP, port: 6443}"},
	endpoints: []netip.Addr{apiServer.Addr()},
}

// late is a Service that comes after those of the attacker.
var late = object{
	namespace: "victim", name: "late", created: "2025", status: "198.51.100.51",
	spec:  []string{"type: LoadBalancer", "clusterIP: 10.96.0.12", "clusterIPs: [10.96.0.12]", "loadBalancerSourceRanges: [203.0.113.0/24]"},
	ports: []string{"{name: t, protocol: TCP, port: 80, targetPort: 8080}"}, targets: webTargets[:1], endpoints: []netip.Addr{web1Addr, web2Addr},
}

// lateAddress is where it is reached from outside.
var lateAddress = netip.MustParseAddrPort("198.51.100.51:80")

// frontends is how many these make: three addresses of one over two protocols, two of
// another, one of the API server.
const frontends = 3*2 + 2 + 1

// manifests are what is there before any attack.
var manifests = map[string]string{"web.yaml": victim.yaml(), "datagrams.yaml": datagrams.yaml(), "kubernetes.yaml": kubernetes.yaml()}

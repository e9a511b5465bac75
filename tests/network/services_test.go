package network

import (
	"net/netip"
	"strings"
)

// The Services: one with the pod of each node, both policies, and one without
// endpoints. Ports are the last digits of what they belong to.
const (
	onNode1 = 30001
	onNode2 = 30002
	onBoth  = 30003
	local1  = 30004 // the policy keeps clients to node 1
	nowhere = 30005
)

var (
	loadBalancer = [2]netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:f::10")}
	external     = [2]netip.Addr{netip.MustParseAddr("203.0.113.11"), netip.MustParseAddr("2001:db8:f::11")}
)

// frontendCount is how many the Services have together: five node ports and
// ClusterIPs, two addresses of load balancers, all in both families and over TCP
// and UDP.
const frontendCount = (5 + 5 + 2) * 2 * 2

var services = servicesOf("2")

// servicesOf are the Services, of which the second one has the pods of nodes.
func servicesOf(two ...string) string {
	return service("one", onNode1, "", "1") + strings.Replace(service("two", onNode2, withAddresses, two...), "NodePort\n", "LoadBalancer\n", 1) +
		service("both", onBoth, "", "1", "2") + service("local", local1, "  externalTrafficPolicy: Local\n", "1") + service("none", nowhere, "")
}

// withAddresses is the end of the spec of a Service that has both.
const withAddresses = `  externalIPs: ["203.0.113.11", "2001:db8:f::11"]
status:
  loadBalancer: {ingress: [{ip: 203.0.113.10}, {ip: "2001:db8:f::10"}]}
`

// service is a Service with its EndpointSlices: the pods of nodes, by number.
func service(name string, nodePort int, spec string, nodes ...string) string {
	digit := string(rune('0' + nodePort%10))
	port := string(append([]byte("3000"), digit...))
	out := `---
apiVersion: v1
kind: Service
metadata: {name: ` + name + `, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.` + digit + `
  clusterIPs: ["10.96.0.` + digit + `", "fd00:10:96::` + digit + `"]
  ipFamilies: [IPv4, IPv6]
  ports:
  - {name: t, protocol: TCP, port: 80, targetPort: 8080, nodePort: ` + port + `}
  - {name: u, protocol: UDP, port: 80, targetPort: 8080, nodePort: ` + port + `}
` + spec
	for kind, pod := range map[string]string{"IPv4": "10.244.%.10", "IPv6": "fd00:10:244:%::10"} {
		out += `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: ` + name + "-" + strings.ToLower(kind) + `, namespace: default, labels: {kubernetes.io/service-name: ` + name + `}}
addressType: ` + kind + `
ports: [{name: t, protocol: TCP, port: 8080}, {name: u, protocol: UDP, port: 8080}]
endpoints:
`
		for _, n := range nodes {
			out += `- {addresses: ["` + strings.Replace(pod, "%", n, 1) + `"], nodeName: node-` + n + "}\n"
		}
		if len(nodes) == 0 {
			out = out[:len(out)-1] + " []\n"
		}
	}
	return out
}

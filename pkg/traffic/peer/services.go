package peer

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/pkg/traffic"
)

// Ports of Services and of servers.
const (
	servicePort  = 80
	askedPort    = 8080 // of the servers of the asked Service: each says who it is
	wildcardPort = 8081 // of all others, which listen on every address of a machine
)

// serviceNet is where Services have their addresses.
var serviceNet = netip.MustParsePrefix("10.96.0.0/16")

// podNet is what rules take for addresses of pods: what comes from elsewhere is
// masqueraded.
var podNet = netip.MustParsePrefix("10.0.0.0/8")

// maxServices is how many Services a place has addresses for.
const maxServices = 60_000

// service is a Service of one address and port.
type service struct {
	name      string
	protocol  string // tcp or udp
	addr      netip.AddrPort
	endpoints []netip.AddrPort
}

// asked is the number of the Service that is asked if only one is: rules that are
// walked meet it half-way.
func asked(services int) int { return services / 2 }

// newServices returns Services with endpoints of their own: no two share one, so
// nobody gains by having found that they are the same.
func newServices(place traffic.PlaceSpec, protocol string, services, endpoints int) []service {
	all := make([]service, services)
	for i := range all {
		all[i] = service{name: fmt.Sprintf("service-%05d", i), protocol: protocol, addr: netip.AddrPortFrom(nth(serviceNet.Addr(), i+1), servicePort)}
		for k := range endpoints {
			n, port := endpoints+i*endpoints+k, uint16(wildcardPort)
			if i == asked(services) {
				n, port = k, askedPort
			}
			_, addrs := place.ServerAddr(n)
			all[i].endpoints = append(all[i].endpoints, netip.AddrPortFrom(addrs[0], port))
		}
	}
	return all
}

// nth returns the address n behind an IPv4 address.
func nth(first netip.Addr, n int) netip.Addr {
	b := first.As4()
	b[2], b[3] = b[2]+byte(n>>8), byte(n)
	return netip.AddrFrom4(b)
}

// targets returns what clients ask: each Service once in random order, or the one
// in the middle. Without a load balancer these are endpoints themselves.
func targets(services []service, one, direct bool) []netip.AddrPort {
	if one {
		s := services[asked(len(services))]
		if direct {
			return s.endpoints
		}
		return []netip.AddrPort{s.addr}
	}
	list := make([]netip.AddrPort, len(services))
	for i, s := range services {
		list[i] = s.addr
		if direct {
			list[i] = s.endpoints[i%len(s.endpoints)]
		}
	}
	if direct && len(services) == 1 {
		list = services[0].endpoints
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	return list
}

// manifests returns a Node and Services as Kubernetes objects.
func manifests(services []service, node string, outside bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Node\nmetadata: {name: %s}\n", node)
	for _, s := range services {
		var members []member
		for _, e := range s.endpoints {
			members = append(members, member{addr: e})
		}
		b.WriteString(manifest(s, members, node, outside))
	}
	return b.String()
}

// manifest returns a Service with its endpoints. For clients from elsewhere it has
// the address of a load balancer, for others a ClusterIP.
func manifest(s service, members []member, node string, outside bool) string {
	var b strings.Builder
	spec, status := fmt.Sprintf("clusterIP: %s, clusterIPs: [%s]", s.addr.Addr(), s.addr.Addr()), ""
	if outside {
		cluster := s.addr.Addr().As4()
		cluster[1]++ // the net behind that of Services
		spec = fmt.Sprintf("type: LoadBalancer, clusterIP: %s, clusterIPs: [%[1]s]", netip.AddrFrom4(cluster))
		status = fmt.Sprintf("status: {loadBalancer: {ingress: [{ip: %s}]}}\n", s.addr.Addr())
	}
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec: {%s, ipFamilies: [IPv4], ports: [{protocol: %s, port: %d}]}\n%s",
		s.name, spec, strings.ToUpper(s.protocol), servicePort, status)
	fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, namespace: default, labels: {kubernetes.io/service-name: %s}}\naddressType: IPv4\nports: [{name: \"\", protocol: %s, port: %d}]\nendpoints:\n",
		s.name, s.name, strings.ToUpper(s.protocol), members[0].addr.Port())
	conditions := map[membership]string{ready: "ready: true", terminating: "ready: false, serving: true, terminating: true"}
	for _, m := range members {
		if m.is != gone {
			fmt.Fprintf(&b, "- {addresses: [%s], conditions: {%s}, nodeName: %s}\n", m.addr.Addr(), conditions[m.is], node)
		}
	}
	return b.String()
}

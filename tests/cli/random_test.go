package cli

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// randomHost is where a pod of a random Service may be.
type randomHost struct {
	addr, node, zone string
	dead             bool // nothing listens there
}

// randomHosts are on this node, which is node-a in zone-a, and outside.
var randomHosts = []randomHost{
	{"10.244.1.1", "node-a", "zone-a", false}, {"10.244.1.2", "node-a", "zone-a", false}, {"10.244.1.3", "node-a", "zone-a", true},
	{"10.244.2.1", "node-b", "zone-a", false}, {"10.244.2.2", "node-c", "zone-b", false}, {"10.244.2.3", "node-c", "zone-b", false},
	{"10.244.2.4", "node-d", "zone-c", true},
}

// randomService is a Service by chance, and where clients may ask for it.
type randomService struct {
	name, yaml string
	addresses  []string
}

// newRandomService returns one of a number: the first has no endpoint, of the second those that are preferred refuse, the third
// has none on this node, and the fourth goes by load.
func newRandomService(r *rand.Rand, i int) randomService {
	s := randomService{name: fmt.Sprint("web-", i)}
	clusterIP, balancer, nodePort := fmt.Sprint("10.96.0.", 10+i), fmt.Sprint("203.0.113.", 10+i), fmt.Sprint(30080+i)
	s.addresses = []string{clusterIP + ":80", balancer + ":80", "192.0.2.1:" + nodePort}
	if i == 0 {
		s.addresses = append(s.addresses, clusterIP+":81", "10.96.7.7:80", "192.0.2.1:22") // where no Service is
	}
	var spec, notes []string
	some := func(to *[]string, of ...string) {
		if one := of[r.IntN(len(of))]; one != "" {
			*to = append(*to, one)
		}
	}
	some(&spec, "", "", "externalTrafficPolicy: Local")
	some(&spec, "", "", "", "internalTrafficPolicy: Local")
	some(&spec, "", "", "loadBalancerSourceRanges: [192.0.2.0/28]", "loadBalancerSourceRanges: [198.51.100.0/24]")
	some(&spec, "", "", "", "sessionAffinity: ClientIP")
	some(&notes, "", "headgate.dev/zone-policy: prefer-zone", "headgate.dev/zone-policy: prefer-node", "headgate.dev/zone-policy: spill")
	some(&notes, "", "", "headgate.dev/algorithm: rr", "headgate.dev/algorithm: maglev", "headgate.dev/algorithm: sh", "headgate.dev/algorithm: p2c", "headgate.dev/algorithm: wlc")
	endpoints := randomEndpoints(r)
	switch i {
	case 0:
		endpoints = nil
	case 1:
		spec, notes, endpoints = nil, []string{"headgate.dev/zone-policy: prefer-zone"}, []string{randomHosts[2].endpoint(""), randomHosts[4].endpoint(""), randomHosts[5].endpoint("")}
	case 2:
		spec, endpoints = []string{"externalTrafficPolicy: Local"}, []string{randomHosts[3].endpoint("")}
	case 3:
		spec, notes, endpoints = nil, []string{"headgate.dev/algorithm: p2c"}, []string{randomHosts[0].endpoint(""), randomHosts[3].endpoint("")}
	}
	s.yaml = fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, annotations: {%s}}
spec: {%s}
status: {loadBalancer: {ingress: [{ip: %s}]}}
`, s.name, strings.Join(notes, ", "), strings.Join(append(spec, "type: LoadBalancer", "clusterIP: "+clusterIP, "ports: [{port: 80, nodePort: "+nodePort+"}]"), ", "), balancer)
	if endpoints != nil {
		s.yaml += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-1, namespace: default, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [{port: 8080}]
endpoints:
%s
`, s.name, s.name, strings.Join(endpoints, "\n"))
	}
	return s
}

// endpoint is one of an EndpointSlice on the host, with more to say of it.
func (h randomHost) endpoint(more string) string {
	return fmt.Sprintf("- {addresses: [%s], nodeName: %s, zone: %s%s}", h.addr, h.node, h.zone, more)
}

// randomEndpoints are some of the hosts, with hints of all, of some or of none.
func randomEndpoints(r *rand.Rand) (out []string) {
	few, hinted := r.IntN(3), r.IntN(3)
	for _, h := range randomHosts {
		if r.IntN(3) < few {
			continue
		}
		more := ""
		if hinted == 1 || hinted == 2 && r.IntN(4) > 0 {
			more += fmt.Sprintf(", hints: {forZones: [{name: %s}]}", h.zone)
		}
		switch r.IntN(8) {
		case 0:
			more += ", conditions: {ready: false, serving: true, terminating: true}"
		case 1:
			more += ", conditions: {ready: false}"
		}
		out = append(out, h.endpoint(more))
	}
	return out
}

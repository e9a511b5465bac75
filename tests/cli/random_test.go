package cli

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// randomHost is where a pod of a random Service may be.
type randomHost struct {
	addr, node, zone string
	dead             bool   // nothing listens there
	unreached        bool   // nobody has a route
	unready          bool   // says the EndpointSlice
	more             string // what else that says
}

// randomHosts are on this node, which is node-a in zone-a, and outside.
var randomHosts = []randomHost{
	{addr: "10.244.1.1", node: "node-a", zone: "zone-a"}, {addr: "10.244.1.2", node: "node-a", zone: "zone-a"}, {addr: "10.244.1.3", node: "node-a", zone: "zone-a", dead: true},
	{addr: "10.244.2.1", node: "node-b", zone: "zone-a"}, {addr: "10.244.2.2", node: "node-c", zone: "zone-b"}, {addr: "10.244.2.3", node: "node-c", zone: "zone-b"},
	{addr: "10.244.2.4", node: "node-d", zone: "zone-c", dead: true}, {addr: "172.31.0.1", node: "node-e", zone: "zone-b", unreached: true},
}

// randomService is a Service by chance, and where clients may ask for it.
type randomService struct {
	name, yaml string
	addresses  []string
	hosts      []randomHost // of its endpoints
}

// sharedByAll is an address of the sixth Service, which has backends of this node, of one that packets are carried to, and of another.
const sharedByAll = "203.0.113.15:80"

// newRandomService returns one of a number: the first has no endpoint, of the second those that are preferred refuse, the third
// has none on this node, the fourth goes by load, the ports of the fifth and its EndpointSlice have other names, and backends of the sixth share all connections.
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
	hosts, portName := randomEndpoints(r), []string{}
	some(&portName, "", "", "", "", "", "", "name: htpp, ")
	switch i {
	case 0:
		hosts = nil
	case 1:
		spec, notes, hosts = nil, []string{"headgate.dev/zone-policy: prefer-zone"}, []randomHost{randomHosts[2], randomHosts[4], randomHosts[5]}
	case 2:
		spec, hosts = []string{"externalTrafficPolicy: Local"}, []randomHost{randomHosts[3]}
	case 3:
		spec, notes, hosts = nil, []string{"headgate.dev/algorithm: p2c"}, []randomHost{randomHosts[0], randomHosts[3]}
	case 4:
		hosts, portName = randomHosts[:2], []string{"name: htpp, "}
	case 5:
		spec, notes, hosts = nil, nil, []randomHost{randomHosts[0], randomHosts[3], randomHosts[4], randomHosts[5]}
	}
	if i != 4 && i <= 5 {
		portName = nil
	}
	if len(portName) == 0 {
		s.hosts = hosts
	}
	s.yaml = fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, annotations: {%s}}
spec: {%s}
status: {loadBalancer: {ingress: [{ip: %s}]}}
`, s.name, strings.Join(notes, ", "), strings.Join(append(spec, "type: LoadBalancer", "clusterIP: "+clusterIP, "ports: [{port: 80, nodePort: "+nodePort+"}]"), ", "), balancer)
	s.yaml += sliceOf(s.name, strings.Join(portName, ""), hosts)
	return s
}

// sliceOf returns an EndpointSlice of a Service as YAML, nothing without hosts. portName is "" or "name: NAME, ".
func sliceOf(service, portName string, hosts []randomHost) string {
	if len(hosts) == 0 {
		return ""
	}
	text := fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-1, namespace: default, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [{%sport: 8080}]
endpoints:
`, service, service, portName)
	for _, h := range hosts {
		text += fmt.Sprintf("- {addresses: [%s], nodeName: %s, zone: %s%s}\n", h.addr, h.node, h.zone, h.more)
	}
	return text
}

// randomEndpoints are some of the hosts, with hints of all, of some or of none.
func randomEndpoints(r *rand.Rand) (out []randomHost) {
	few, hinted := r.IntN(3), r.IntN(3)
	for _, h := range randomHosts {
		if r.IntN(3) < few {
			continue
		}
		if hinted == 1 || hinted == 2 && r.IntN(4) > 0 {
			h.more += fmt.Sprintf(", hints: {forZones: [{name: %s}]}", h.zone)
		}
		switch r.IntN(8) {
		case 0:
			h.more += ", conditions: {ready: false, serving: true, terminating: true}"
		case 1:
			h.more += ", conditions: {ready: false}"
			h.unready = true
		}
		out = append(out, h)
	}
	return out
}

package netns_test

import (
	"fmt"
	"strings"
)

// serviceYAML is a Service of TCP port 80.
func serviceYAML(name, clusterIP string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec: {type: ClusterIP, clusterIP: %q, clusterIPs: [%q], ports: [{name: main, port: 80, protocol: TCP}]}
`, name, clusterIP, clusterIP)
}

// sliceYAML is the EndpointSlice of a Service, with endpoints at port 8080.
func sliceYAML(service string, endpoints ...*backend) string {
	family := "IPv4"
	var b strings.Builder
	for _, e := range endpoints {
		if e.at.Addr.Is6() {
			family = "IPv6"
		}
		fmt.Fprintf(&b, "- {addresses: [%q], conditions: {ready: true}, nodeName: node-a}\n", e.at.Addr)
	}
	return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-1, namespace: default, labels: {kubernetes.io/service-name: %s}}
addressType: %s
ports: [{name: main, port: 8080, protocol: TCP}]
endpoints:
%s`, service, service, family, b.String())
}

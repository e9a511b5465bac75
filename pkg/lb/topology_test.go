package lb

import "testing"

// The endpoints that more than one case below looks at.
const (
	zonesABCA = `10.1.2.3 ready zones=zone-a; 10.1.2.4 ready zones=zone-b
		10.1.2.5 ready zones=zone-c; 10.1.2.6 ready zones=zone-a`
	zonesABCAHalfHere = `10.1.2.3 ready zones=zone-a on=node-1; 10.1.2.4 ready zones=zone-b on=node-1
		10.1.2.5 ready zones=zone-c; 10.1.2.6 ready zones=zone-a`
	nodes1234 = `10.1.2.3 ready zones=zone-a nodes=node-1; 10.1.2.4 ready zones=zone-b nodes=node-2
		10.1.2.5 ready zones=zone-c nodes=node-3; 10.1.2.6 ready zones=zone-a nodes=node-4`
	bothRemote      = "10.0.0.0 ready on=node-2; 10.0.0.1 ready on=node-2"
	bothHere        = "10.0.0.0 ready on=node-1; 10.0.0.1 ready on=node-1"
	firstHere       = "10.0.0.0 ready on=node-1; 10.0.0.1 ready on=node-2"
	secondHere      = "10.0.0.0 ready on=node-2; 10.0.0.1 ready on=node-1"
	drainingRemote  = "10.0.0.0 serving terminating on=node-2; 10.0.0.1 serving terminating on=node-2"
	remoteAndLeaver = `10.0.0.0 ready on=node-2; 10.0.0.1 unready on=node-1
		10.0.0.2 serving terminating on=node-1; 10.0.0.3 serving terminating on=node-2`
)

// The words of selectionCase.policies.
const (
	itpLocal = 1 << iota // internalTrafficPolicy Local
	etpLocal             // externalTrafficPolicy Local
	nodePort             // the Service port has a NodePort
)

type selectionCase struct {
	name      string
	node      Node
	policies  int
	endpoints string
	cluster   string // "" where unused or empty
	local     string
	hasNone   bool // hasAny is false
}

// topologyCases are those of kube-proxy's TestCategorizeEndpoints, by name,
// that are about hints.
var topologyCases = []selectionCase{
	{name: "should use topology since all endpoints have hints, node has a zone label and there are endpoints for the node's zone",
		node: Node{Zone: "zone-a"}, endpoints: zonesABCA, cluster: "10.1.2.3 10.1.2.6"},
	{name: "externalTrafficPolicy: Local, topology ignored for Local endpoints",
		node: here, policies: etpLocal | nodePort, endpoints: zonesABCAHalfHere,
		cluster: "10.1.2.3 10.1.2.6", local: "10.1.2.3 10.1.2.4"},
	{name: "internalTrafficPolicy: Local, topology ignored for Local endpoints",
		node: here, policies: itpLocal | nodePort, endpoints: zonesABCAHalfHere,
		cluster: "10.1.2.3 10.1.2.6", local: "10.1.2.3 10.1.2.4"},
	{name: "empty node labels", endpoints: "10.1.2.3 ready zones=zone-a", cluster: "10.1.2.3"},
	{name: "empty zone label", node: Node{Name: "node-1", Zone: ""},
		endpoints: "10.1.2.3 ready zones=zone-a", cluster: "10.1.2.3"},
	{name: "node in different zone, no endpoint filtering", node: Node{Zone: "zone-b"},
		endpoints: "10.1.2.3 ready zones=zone-a", cluster: "10.1.2.3"},
	{name: "unready endpoint", node: Node{Zone: "zone-a"},
		endpoints: `10.1.2.3 ready zones=zone-a; 10.1.2.4 ready zones=zone-b
			10.1.2.5 ready zones=zone-c; 10.1.2.6 unready zones=zone-a`, cluster: "10.1.2.3"},
	{name: "only unready endpoints in same zone (should not filter)", node: Node{Zone: "zone-a"},
		endpoints: `10.1.2.3 unready zones=zone-a; 10.1.2.4 ready zones=zone-b
			10.1.2.5 ready zones=zone-c; 10.1.2.6 unready zones=zone-a`, cluster: "10.1.2.4 10.1.2.5"},
	{name: "missing hints, no filtering applied", node: Node{Zone: "zone-a"},
		endpoints: `10.1.2.3 ready zones=zone-a; 10.1.2.4 ready zones=zone-b
			10.1.2.5 ready; 10.1.2.6 ready zones=zone-a`, cluster: "10.1.2.3 10.1.2.4 10.1.2.5 10.1.2.6"},
	{name: "multiple hints per endpoint, filtering includes any endpoint with zone included", node: Node{Zone: "zone-c"},
		endpoints: `10.1.2.3 ready zones=zone-a,zone-b,zone-c; 10.1.2.4 ready zones=zone-b,zone-c
			10.1.2.5 ready zones=zone-b,zone-d; 10.1.2.6 ready zones=zone-c`, cluster: "10.1.2.3 10.1.2.4 10.1.2.6"},
	{name: "PreferSameNode available", node: here, endpoints: nodes1234, cluster: "10.1.2.3"},
	// Upstream a gate that is no more; without it slices have no hints for nodes.
	{name: "PreferSameNode falls back to same-zone when feature gate disabled", node: here, endpoints: zonesABCA, cluster: "10.1.2.3 10.1.2.6"},
	{name: "PreferSameNode ignored if some endpoints unhinted", node: here,
		endpoints: `10.1.2.3 ready zones=zone-a nodes=node-1; 10.1.2.4 ready
			10.1.2.5 ready zones=zone-c nodes=node-3; 10.1.2.6 ready zones=zone-a nodes=node-4`,
		cluster: "10.1.2.3 10.1.2.4 10.1.2.5 10.1.2.6"},
	{name: "PreferSameNode falls back to PreferSameZone if no endpoint for node",
		node: Node{Name: "node-0", Zone: "zone-a"}, endpoints: nodes1234, cluster: "10.1.2.3 10.1.2.6"},
	{name: "conflicting topology and localness require merging allEndpoints", node: here, policies: etpLocal | nodePort,
		endpoints: `10.0.0.0 ready zones=zone-a on=node-1; 10.0.0.1 ready zones=zone-b on=node-1
			10.0.0.2 ready zones=zone-a on=node-2; 10.0.0.3 ready zones=zone-b on=node-2`,
		cluster: "10.0.0.0 10.0.0.2", local: "10.0.0.0 10.0.0.1"},
}

// policyCases are the rest of them.
var policyCases = []selectionCase{
	{name: "internalTrafficPolicy: Local, with empty endpoints", policies: itpLocal, hasNone: true},
	{name: "internalTrafficPolicy: Local, but all endpoints are remote", policies: itpLocal, endpoints: bothRemote},
	{name: "internalTrafficPolicy: Local, all endpoints are local",
		policies: itpLocal, endpoints: bothHere, local: "10.0.0.0 10.0.0.1"},
	{name: "internalTrafficPolicy: Local, some endpoints are local",
		policies: itpLocal, endpoints: firstHere, local: "10.0.0.0"},
	{name: "Cluster traffic policy, endpoints not Ready", endpoints: "10.0.0.0 unready; 10.0.0.1 unready", hasNone: true},
	{name: "Cluster traffic policy, some endpoints are Ready",
		endpoints: "10.0.0.0 unready; 10.0.0.1 ready", cluster: "10.0.0.1"},
	{name: "Cluster traffic policy, all endpoints are terminating",
		endpoints: "10.0.0.0 serving terminating on=node-1; 10.0.0.1 serving terminating on=node-2", cluster: "10.0.0.0 10.0.0.1"},
	{name: "iTP: Local, eTP: Cluster, some endpoints local", policies: itpLocal | nodePort,
		endpoints: firstHere, cluster: "10.0.0.0 10.0.0.1", local: "10.0.0.0"},
	{name: "iTP: Cluster, eTP: Local, some endpoints local", policies: etpLocal | nodePort,
		endpoints: firstHere, cluster: "10.0.0.0 10.0.0.1", local: "10.0.0.0"},
	{name: "iTP: Local, eTP: Local, some endpoints local", policies: itpLocal | etpLocal | nodePort,
		endpoints: firstHere, cluster: "10.0.0.0 10.0.0.1", local: "10.0.0.0"},
	{name: "iTP: Local, eTP: Local, all endpoints remote", policies: itpLocal | etpLocal | nodePort,
		endpoints: bothRemote, cluster: "10.0.0.0 10.0.0.1"},
	{name: "iTP: Local, eTP: Local, all endpoints remote and terminating", policies: itpLocal | etpLocal | nodePort,
		endpoints: drainingRemote, cluster: "10.0.0.0 10.0.0.1"},
	{name: "iTP: Cluster, eTP: Local, with terminating endpoints", policies: etpLocal | nodePort,
		endpoints: remoteAndLeaver, cluster: "10.0.0.0", local: "10.0.0.2"},
	{name: "externalTrafficPolicy ignored if not externally accessible", policies: etpLocal,
		endpoints: secondHere, cluster: "10.0.0.0 10.0.0.1"},
	{name: "no cluster endpoints for iTP:Local internal-only service", policies: itpLocal,
		endpoints: secondHere, local: "10.0.0.1"},
	{name: "empty endpoints when no service endpoints exist", hasNone: true},
	{name: "single endpoint not ready, not serving, not terminating", endpoints: "10.0.0.0 unready", hasNone: true},
}

// ownCases are of rules that the cases above leave open.
var ownCases = []selectionCase{
	{name: "iTP Local without external addresses: only terminating endpoints elsewhere are still some",
		policies: itpLocal, endpoints: drainingRemote},
	{name: "terminating endpoints are taken whatever their hints say", node: here,
		endpoints: "10.0.0.0 serving terminating zones=zone-b; 10.0.0.1 serving terminating zones=zone-a", cluster: "10.0.0.0 10.0.0.1"},
	{name: "the hints of terminating endpoints do not count when there are ready ones", node: here,
		endpoints: "10.0.0.0 ready zones=zone-b; 10.0.0.1 serving terminating zones=zone-a", cluster: "10.0.0.0"},
	{name: "an endpoint that is ready and terminating (publishNotReadyAddresses) is ready", node: here, policies: etpLocal | nodePort,
		endpoints: "10.0.0.0 ready terminating on=node-1; 10.0.0.1 ready on=node-2", cluster: "10.0.0.0 10.0.0.1", local: "10.0.0.0"},
	{name: "an endpoint that terminates without serving is never usable", node: here, policies: etpLocal | nodePort,
		endpoints: "10.0.0.0 terminating on=node-1", hasNone: true},
	{name: "an endpoint that serves without being ready is not usable before it terminates", endpoints: "10.0.0.0 serving", hasNone: true},
	{name: "a node without a name has no local endpoints and no hints", node: Node{Zone: "zone-a"}, policies: itpLocal | nodePort,
		endpoints: "10.0.0.0 ready nodes=,x; 10.0.0.1 ready nodes=node-1", cluster: "10.0.0.0 10.0.0.1"},
	{name: "an empty zone hint is nobody's zone", node: Node{Name: "node-1"},
		endpoints: "10.0.0.0 ready zones=,x; 10.0.0.1 ready zones=zone-a", cluster: "10.0.0.0 10.0.0.1"},
	{name: "PreferSameNode needs no zone hints", node: here,
		endpoints: "10.0.0.0 ready nodes=node-1; 10.0.0.1 ready nodes=node-2 zones=zone-a", cluster: "10.0.0.0"},
	{name: "without a node hint on every endpoint, zone hints decide", node: here,
		endpoints: "10.0.0.0 ready zones=zone-b nodes=node-1; 10.0.0.1 ready zones=zone-a", cluster: "10.0.0.1"},
	{name: "PreferSameNode needs no zone", node: Node{Name: "node-2"}, endpoints: nodes1234, cluster: "10.1.2.4"},
}

func TestSelectEndpoints(t *testing.T) {
	for _, cases := range [][]selectionCase{topologyCases, policyCases, ownCases} {
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) { checkSelection(t, tc) })
		}
	}
}

func checkSelection(t *testing.T, tc selectionCase) {
	svc := &Service{}
	port := ServicePort{Name: "http", Protocol: TCP, Port: 80}
	if tc.policies&itpLocal != 0 {
		svc.InternalPolicy = PolicyLocal
	}
	if tc.policies&etpLocal != 0 {
		svc.ExternalPolicy = PolicyLocal
	}
	if tc.policies != 0 && tc.node == (Node{}) {
		tc.node = here
	}
	if tc.policies&nodePort != 0 {
		port.NodePort = 30080
	}
	from := merge([]*Slice{mustSlice(t, "a", tc.endpoints)}, port, addrs("10.0.0.0")[0])
	got := selectEndpoints(from, svc, port, tc.node)
	mustDiff(t, tc.cluster, hosts(got.cluster))
	mustDiff(t, tc.local, hosts(got.local))
	mustDiff(t, !tc.hasNone, got.hasAny)
}

package lb

import "slices"

// selection is the endpoints of one Service port that are usable from this
// node, for each traffic policy. It answers to CategorizeEndpoints of
// kube-proxy (k8s.io/kubernetes/pkg/proxy/topology.go, v1.36).
type selection struct {
	// cluster is for clients under policy Cluster. It is empty where no
	// client of the Service port is under that policy.
	cluster []AddrPort
	// local is for clients under policy Local: endpoints on this node. It
	// is empty where no client of the Service port is under that policy.
	local []AddrPort
	// hasAny is set where some endpoint is usable from somewhere. Without
	// it clients are refused; with it, and nothing local, clients under
	// policy Local meet a node that is not for them.
	hasAny bool
	// known is every backend that established flows may keep.
	known []AddrPort
	// clusterWeights and localWeights are those of the lists above.
	clusterWeights, localWeights []uint32
}

// selectEndpoints says which endpoints of a Service port clients reach from
// this node. Ready endpoints are usable; where there are none, serving
// terminating ones are, for each list by itself.
func selectEndpoints(from []candidate, svc *Service, port ServicePort, node Node) selection {
	c := count(from, node)
	s := selection{hasAny: c.ready+c.draining > 0}
	external := svc.ExternallyAccessible(port)
	if svc.InternalPolicy == PolicyCluster || external {
		s.cluster = clusterList(from, c, node)
	}
	if svc.InternalPolicy == PolicyLocal || external && svc.ExternalPolicy == PolicyLocal {
		s.local = localList(from, c, node)
	}
	if slices.Equal(s.local, s.cluster) {
		s.local = s.cluster // equal content, one slice
	}
	s.clusterWeights, s.localWeights = weightsOf(s.cluster, from), weightsOf(s.local, from)
	return s
}

// view returns what clients under a traffic policy reach.
func (s selection) view(p TrafficPolicy) View {
	if p == PolicyLocal {
		return View{Backends: s.local, Weights: s.localWeights, NoLocal: s.hasAny && len(s.local) == 0}
	}
	return View{Backends: s.cluster, Weights: s.clusterWeights}
}

// census counts the endpoints that matter to the selection.
type census struct {
	ready        int // everything down to readyHere is counted of these only
	nodeHinted   int // for some node
	forNode      int // for this node
	zoneHinted   int // for some zone
	forZone      int // for the zone of this node
	readyHere    int
	draining     int
	drainingHere int
}

// count takes the census.
func count(from []candidate, node Node) census {
	var c census
	for _, one := range from {
		e := one.endpoint
		switch {
		case e.Ready:
			c.ready++
			c.nodeHinted += toInt(len(e.NodeHints) > 0)
			c.forNode += toInt(e.hintsNode(node))
			c.zoneHinted += toInt(len(e.ZoneHints) > 0)
			c.forZone += toInt(e.hintsZone(node))
			c.readyHere += toInt(e.isOn(node))
		case e.draining():
			c.draining++
			c.drainingHere += toInt(e.isOn(node))
		}
	}
	return c
}

// clusterList returns the endpoints for policy Cluster. Hints are followed only
// where every ready endpoint has one and at least one of them means us: a
// partial set of hints is one that a controller is still writing (KEP-2433,
// KEP-3015). Terminating endpoints are taken from anywhere.
func clusterList(from []candidate, c census, node Node) []AddrPort {
	switch {
	case c.ready == 0:
		return pick(from, c.draining, (*Endpoint).draining)
	case c.nodeHinted == c.ready && c.forNode > 0:
		return pick(from, c.forNode, func(e *Endpoint) bool { return e.Ready && e.hintsNode(node) })
	case c.zoneHinted == c.ready && c.forZone > 0:
		return pick(from, c.forZone, func(e *Endpoint) bool { return e.Ready && e.hintsZone(node) })
	default:
		return pick(from, c.ready, func(e *Endpoint) bool { return e.Ready })
	}
}

// localList returns the endpoints for policy Local, whatever the hints say.
func localList(from []candidate, c census, node Node) []AddrPort {
	if c.readyHere > 0 {
		return pick(from, c.readyHere, func(e *Endpoint) bool { return e.Ready && e.isOn(node) })
	}
	return pick(from, c.drainingHere, func(e *Endpoint) bool {
		return !e.Ready && e.draining() && e.isOn(node)
	})
}

// pick returns the n backends whose endpoints are wanted, nil where n is 0.
func pick(from []candidate, n int, wanted func(*Endpoint) bool) []AddrPort {
	if n == 0 {
		return nil
	}
	picked := make([]AddrPort, 0, n)
	for _, one := range from {
		if wanted(one.endpoint) {
			picked = append(picked, one.backend)
		}
	}
	return picked
}

// draining says whether the endpoint still answers on its way out.
func (e *Endpoint) draining() bool { return e.Serving && e.Terminating }

// isOn says whether the endpoint is on the node. One on an unknown node is not.
func (e *Endpoint) isOn(node Node) bool { return e.Node != "" && e.Node == node.Name }

// hintsNode says whether the endpoint is meant for clients on the node.
func (e *Endpoint) hintsNode(node Node) bool {
	return node.Name != "" && slices.Contains(e.NodeHints, node.Name)
}

// hintsZone says whether the endpoint is meant for clients in the node's zone.
func (e *Endpoint) hintsZone(node Node) bool {
	return node.Zone != "" && slices.Contains(e.ZoneHints, node.Zone)
}

// toInt returns 1 for true.
func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

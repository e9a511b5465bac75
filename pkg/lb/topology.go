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
	// weightless is set where some endpoint would be usable, but for its weight of 0.
	weightless bool
	// members are all backends that established flows may keep.
	members []AddrPort
	// clusterWeights and localWeights are those of the lists above.
	clusterWeights, localWeights []uint32
	clusterWhy                   Why
	// What stands in for cluster, see Frontend.
	fallbackZone, fallbackAll View
	spill                     uint32 // of 2^32 clients, to all
	// For clients of carried frontends; empty where there are none.
	everywhere View
	homes      map[AddrPort]string
}

// selectEndpoints says which endpoints of a Service port clients reach from
// this node. Ready endpoints are usable; where there are none, serving
// terminating ones are, for each list by itself.
func selectEndpoints(from []candidate, svc *Service, port ServicePort, node Node) selection {
	c := count(from, node)
	s := selection{hasAny: c.ready+c.draining > 0}
	cluster, local := svc.uses(port)
	if cluster {
		s.selectCluster(from, c, svc.Zones, node)
	}
	if local {
		s.local = c.list(from, c.localRule(), node)
	}
	if slices.Equal(s.local, s.cluster) {
		s.local = s.cluster // equal content, one slice
	}
	s.clusterWeights, s.localWeights = weightsOf(s.cluster, from), weightsOf(s.local, from)
	s.fallbackZone.Weights = weightsOf(s.fallbackZone.Backends, from)
	s.fallbackAll.Weights = weightsOf(s.fallbackAll.Backends, from)
	if svc.Forwarding == DSR {
		s.selectEverywhere(from, c)
	}
	return s
}

// uses says under which traffic policies a Service port has clients.
func (s *Service) uses(port ServicePort) (cluster, local bool) {
	external := s.ExternallyAccessible(port)
	return s.InternalPolicy == PolicyCluster || external, s.InternalPolicy == PolicyLocal || external && s.ExternalPolicy == PolicyLocal
}

// selectCluster selects the endpoints for policy Cluster.
func (s *selection) selectCluster(from []candidate, c counts, zones ZonePolicy, node Node) {
	if zones == ZoneHints {
		s.cluster, s.clusterWhy = c.list(from, c.clusterRule(), node), c.why(node)
		return
	}
	usable := func(e *Endpoint) bool { return e.Ready }
	if c.ready == 0 {
		usable = (*Endpoint).draining
	}
	s.cluster, s.clusterWhy, s.fallbackZone.Backends, s.fallbackAll.Backends = nearest(zones, from, node, usable)
	if zones == ZoneSpill {
		s.spill = spill(from, node, usable)
	}
}

// view returns what clients under a traffic policy reach.
func (s selection) view(p TrafficPolicy) View {
	if p == PolicyLocal {
		v := View{Backends: s.local, Weights: s.localWeights, NoLocal: s.hasAny && len(s.local) == 0, Why: WhyLocal}
		if s.weightless {
			v.Why = WhyWeightless
		}
		return v
	}
	v := View{Backends: s.cluster, Weights: s.clusterWeights, Why: s.clusterWhy, FallsBack: len(s.fallbackAll.Backends) > 0}
	if len(v.Backends) == 0 {
		v.Why = s.whyNone()
	}
	return v
}

// whyNone says why there is no usable endpoint.
func (s selection) whyNone() Why {
	if s.weightless {
		return WhyWeightless
	}
	return WhyNone
}

// counts are of the endpoints that matter to the selection.
type counts struct {
	ready        int // everything down to readyHere is counted of these only
	nodeHinted   int // for some node
	forNode      int // for this node
	zoneHinted   int // for some zone
	forZone      int // for the zone of this node
	readyHere    int
	draining     int
	drainingHere int
	serving      int
}

// count counts them.
func count(from []candidate, node Node) counts {
	var c counts
	for _, one := range from {
		e := one.endpoint
		c.serving += toInt(e.serves())
		switch {
		case e.Ready:
			c.ready++
			where := e.Where.Topology()
			c.nodeHinted += toInt(where.NodeHints != "")
			c.forNode += toInt(e.hintsNode(node))
			c.zoneHinted += toInt(where.ZoneHints != "")
			c.forZone += toInt(e.hintsZone(node))
			c.readyHere += toInt(e.isOn(node))
		case e.draining():
			c.draining++
			c.drainingHere += toInt(e.isOn(node))
		}
	}
	return c
}

// plus adds other counts.
func (c counts) plus(o counts) counts {
	return counts{
		c.ready + o.ready, c.nodeHinted + o.nodeHinted, c.forNode + o.forNode, c.zoneHinted + o.zoneHinted,
		c.forZone + o.forZone, c.readyHere + o.readyHere, c.draining + o.draining, c.drainingHere + o.drainingHere, c.serving + o.serving,
	}
}

// minus subtracts other counts.
func (c counts) minus(o counts) counts {
	return c.plus(counts{-o.ready, -o.nodeHinted, -o.forNode, -o.zoneHinted, -o.forZone, -o.readyHere, -o.draining, -o.drainingHere, -o.serving})
}

// rule says which endpoints a list has.
type rule uint8

const (
	allReady rule = iota
	readyForNode
	readyForZone
	allDraining
	readyHere
	drainingHere
)

// wants says whether an endpoint is in the list.
func (r rule) wants(e *Endpoint, node Node) bool {
	switch r {
	case readyForNode:
		return e.Ready && e.hintsNode(node)
	case readyForZone:
		return e.Ready && e.hintsZone(node)
	case allDraining:
		return !e.Ready && e.draining()
	case readyHere:
		return e.Ready && e.isOn(node)
	case drainingHere:
		return !e.Ready && e.draining() && e.isOn(node)
	default:
		return e.Ready
	}
}

// size returns how many endpoints a list has by its rule.
func (c counts) size(r rule) int {
	return [...]int{allReady: c.ready, readyForNode: c.forNode, readyForZone: c.forZone,
		allDraining: c.draining, readyHere: c.readyHere, drainingHere: c.drainingHere}[r]
}

// clusterRule says which endpoints clients under policy Cluster reach. Hints are
// followed only where every ready endpoint has one and at least one of them means
// us: a partial set of hints is one that a controller is still writing (KEP-2433,
// KEP-3015). Terminating endpoints are taken from anywhere.
func (c counts) clusterRule() rule {
	switch {
	case c.ready == 0:
		return allDraining
	case c.nodeHinted == c.ready && c.forNode > 0:
		return readyForNode
	case c.zoneHinted == c.ready && c.forZone > 0:
		return readyForZone
	default:
		return allReady
	}
}

// why says why clients under policy Cluster reach what clusterRule says.
func (c counts) why(node Node) Why {
	switch c.clusterRule() {
	case allDraining:
		return WhyTerminating
	case readyForNode:
		return WhyNodeHints
	case readyForZone:
		return WhyZoneHints
	}
	switch {
	case c.zoneHinted == 0 && c.nodeHinted == 0:
		return WhyAll
	case c.zoneHinted < c.ready && c.nodeHinted < c.ready:
		return WhyHintsMissing
	case node.Zone == "":
		return WhyNoZone
	default:
		return WhyHintsOthers
	}
}

// localRule says which endpoints clients under policy Local reach, whatever the
// hints say.
func (c counts) localRule() rule {
	if c.readyHere > 0 {
		return readyHere
	}
	return drainingHere
}

// list returns the endpoints of a rule.
func (c counts) list(from []candidate, r rule, node Node) []AddrPort {
	return pick(from, c.size(r), func(e *Endpoint) bool { return r.wants(e, node) })
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
func (e *Endpoint) isOn(node Node) bool {
	return node.Name != "" && e.Where.Topology().Node == node.Name
}

// hintsNode says whether the endpoint is meant for clients on the node.
func (e *Endpoint) hintsNode(node Node) bool {
	return node.Name != "" && e.Where.Topology().NodeHints.has(node.Name)
}

// hintsZone says whether the endpoint is meant for clients in the node's zone.
func (e *Endpoint) hintsZone(node Node) bool {
	return node.Zone != "" && e.Where.Topology().ZoneHints.has(node.Zone)
}

// toInt returns 1 for true.
func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

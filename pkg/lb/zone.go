package lb

import (
	"math"
	"slices"
)

// ZonePolicy says which endpoints are preferred where the traffic policy lets
// clients reach all of them.
type ZonePolicy uint8

// The zone policies.
const (
	// ZoneHints follows the hints of EndpointSlices, all or nothing (KEP-2433,
	// KEP-3015), as Kubernetes says.
	ZoneHints ZonePolicy = iota
	// ZonePreferNode takes endpoints on the node, else in its zone, else all;
	// and falls back to the next where the nearer are all ejected.
	ZonePreferNode
	// ZonePreferZone is the same without the node.
	ZonePreferZone
	// ZoneSpill is as ZonePreferZone, but where the zone has less than its part
	// of the endpoints a share of its clients goes to all.
	ZoneSpill
)

// zonePolicyNames are the names of zone policies, in order.
var zonePolicyNames = [...]string{"hints", "prefer-node", "prefer-zone", "spill"}

// ZonePolicies returns the names of all zone policies.
func ZonePolicies() []string { return slices.Clone(zonePolicyNames[:]) }

// String returns the name that annotations use.
func (z ZonePolicy) String() string { return zonePolicyNames[z] }

// ParseZonePolicy returns the zone policy of a name; false if none has it.
func ParseZonePolicy(name string) (ZonePolicy, bool) {
	i := slices.Index(zonePolicyNames[:], name)
	return ZonePolicy(max(i, 0)), i >= 0
}

// Why says why a view has these backends and no others.
type Why uint8

// The reasons. At most 15 fit into the maps.
const (
	WhyUnknown       Why = iota
	WhyAll               // every ready endpoint, none has a hint
	WhyNodeHints         // hints name this node
	WhyZoneHints         // hints name the zone of this node
	WhyHintsMissing      // hints ignored: an endpoint has none
	WhyHintsOthers       // hints ignored: they name neither this node nor its zone
	WhyNoZone            // hints ignored: this node has no zone
	WhyTerminating       // no endpoint is ready, these still serve
	WhyLocal             // policy Local: those on this node
	WhyPreferredNode     // zone policy: on this node
	WhyPreferredZone     // zone policy: in the zone of this node
	WhyNothingNearer     // zone policy: none is on this node or in its zone
	WhyNone              // no endpoint is usable
	WhyWeightless        // those that are usable have weight 0
	WhyEverywhere        // carried: every ready endpoint, whatever hints and zone policy say
)

// whyTexts are the reasons for people, in order.
var whyTexts = [...]string{
	"", "every ready endpoint", "hints for this node", "hints for this zone",
	"hints ignored: an endpoint has none", "hints ignored: none is for this node or zone", "hints ignored: this node has no zone label",
	"no endpoint is ready, these still serve", "traffic policy Local", "zone policy: on this node", "zone policy: in this zone",
	"zone policy: nothing nearer", "no usable endpoint", "every usable endpoint has weight 0; give one of them another weight",
	"forwarding dsr: every ready endpoint in all zones",
}

// String returns the reason for people, "" for WhyUnknown.
func (w Why) String() string {
	if int(w) < len(whyTexts) {
		return whyTexts[w]
	}
	return ""
}

// nearest applies a zone policy to endpoints: those that are preferred, and the
// fallbacks, in the zone and in all. A fallback that adds nothing to what comes
// before is nil.
func nearest(policy ZonePolicy, from []candidate, node Node, usable func(*Endpoint) bool) (list []AddrPort, why Why, inZone, inAll []AddrPort) {
	all := pick(from, len(from), usable)
	zone := pick(from, len(from), func(e *Endpoint) bool { return usable(e) && e.inZone(node) })
	var here []AddrPort
	if policy == ZonePreferNode {
		here = pick(from, len(from), func(e *Endpoint) bool { return usable(e) && e.isOn(node) })
	}
	if len(zone) == len(all) {
		zone = nil
	}
	switch {
	case len(here) > 0 && len(here) < len(all):
		if len(zone) <= len(here) {
			zone = nil
		}
		return here, WhyPreferredNode, zone, all
	case len(zone) > 0:
		return zone, WhyPreferredZone, nil, all
	default:
		return all, WhyNothingNearer, nil, nil
	}
}

// spill returns how many of 2^32 clients of a zone should go to all endpoints,
// where the zone has fewer than its part. Every zone that has endpoints is taken to
// have an equal part of the clients.
func spill(from []candidate, node Node, usable func(*Endpoint) bool) uint32 {
	zones, all, here := map[string]bool{}, 0, 0
	for _, c := range from {
		if !usable(c.endpoint) {
			continue
		}
		all++
		here += toInt(c.endpoint.inZone(node))
		zones[c.endpoint.Where.Topology().Zone] = true
	}
	if here == 0 || here == all {
		return 0
	}
	has, should := float64(here)/float64(all), 1/float64(len(zones))
	// Of those that go to all, a part comes back to the own zone.
	share := (1 - has/should) / (1 - has)
	return uint32(max(0, share) * math.MaxUint32)
}

// inZone says whether the endpoint is in the zone of a node.
func (e *Endpoint) inZone(node Node) bool {
	return node.Zone != "" && e.Where.Topology().Zone == node.Zone
}

// Package rules writes rule sets of the shape that kube-proxy's have, for
// iptables and for nftables, in either family: a chain for each Service that
// chooses at random, a chain for each endpoint that translates, marks for what is
// to be masqueraded, and the look-ups of new connections that filters have.
//
// They have what a ClusterIP or the address of a load balancer with the policy
// Cluster needs, and none of the rules for NodePorts, health checks, session
// affinity and source ranges: they are rather faster than the originals.
package rules

import "net/netip"

// Service is a Service of one address and port.
type Service struct {
	Protocol  string         // tcp or udp
	Addr      netip.AddrPort // what clients ask
	Endpoints []netip.AddrPort
}

// mark is that of packets which leave with the node's address.
const mark = "0x4000"

// bits is the length of an address, for a prefix of one.
func bits(a netip.Addr) string {
	if a.Is4() {
		return "/32"
	}
	return "/128"
}

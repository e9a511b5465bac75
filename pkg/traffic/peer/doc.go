// Package peer brings up what is measured beside each other: nothing at all,
// Headgate, rule sets of the shape that kube-proxy writes, and whatever a pair of
// commands brings up. Each has a place of its own, so that none sees another one,
// with the same Services and servers.
//
// The rule sets follow how kube-proxy's are built: a chain for each Service that
// chooses at random, a chain for each endpoint that translates, marks for what is
// to be masqueraded. They are for IPv4 and have what a ClusterIP or the address of
// a load balancer needs, and none of the rules for NodePorts, health checks or
// session affinity: they are rather faster than the originals.
package peer

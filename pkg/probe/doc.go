// Package probe asks backends whether they are well, from this node, where a Service
// wants it: those of which no kubelet does it. What it finds out it tells; what
// becomes of that is for others.
//
// Whoever may write Services and EndpointSlices decides where these requests go, and
// they come from the node. So they are bounded: some addresses are never asked (Guard),
// everything that is asked is asked once however many Services name it, each namespace
// has a budget, and a request is a GET without a query of which only the status counts.
package probe

// Package probe asks backends whether they are well, from this node, where a Service
// wants it: those of which no kubelet does it. What it finds out it tells; what
// becomes of that is for others.
package probe

// Package network tries Headgate in a small network of namespaces, with real
// TCP and UDP:
//
//	client ── far ──(MTU 1400)── router ── node-1 ── pod-1
//	                                └───── node-2 ── pod-2
//
// Every node has an agent of its own, with a cgroup and a BPF directory. The
// way between the nodes' pods is by routes, or by VXLAN. Strict reverse-path
// filters are on everywhere.
package network

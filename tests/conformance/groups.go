package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
)

// A group of tests is run together, and is a row of the table.
type group struct {
	name  string
	title string
	focus string // regular expressions of names
	skip  string
	nodes int
	dual  bool
	// outside says that its tests have clients elsewhere, so that packets are carried where a proxy does that.
	outside bool
}

var groups = []group{
	{name: "services", title: "Services", focus: `\[sig-network\] Services`, nodes: 3},
	{name: "network", title: "the rest of sig-network", focus: `\[sig-network\]`,
		skip: `\[sig-network\] Services|LoadBalancers|Traffic Distribution|Topology Hints|IPv6DualStack`, nodes: 3},
	{name: "loadbalancer", title: "LoadBalancers", focus: `\[sig-network\] LoadBalancers`, nodes: 3, outside: true},
	{name: "dual", title: "dual stack, traffic distribution", focus: `\[sig-network\].*(Traffic Distribution|Topology Hints|IPv6DualStack)`, nodes: 6, dual: true},
}

// has says whether a test is of the group.
func (g group) has(test string) bool {
	return regexp.MustCompile(g.focus).MatchString(test) && (g.skip == "" || !regexp.MustCompile(g.skip).MatchString(test))
}

func groupNamed(name string) (group, error) {
	for _, g := range groups {
		if g.name == name {
			return g, nil
		}
	}
	return group{}, fmt.Errorf("unknown group %q", name)
}

// A shape is that of a cluster, with the groups that want it.
type shape struct {
	nodes  int
	dual   bool
	groups []string
}

func shapesOf(names []string) []shape {
	var all []shape
next:
	for _, name := range names {
		g, _ := groupNamed(name)
		for i, s := range all {
			if s.nodes == g.nodes && s.dual == g.dual {
				all[i].groups = append(s.groups, name)
				continue next
			}
		}
		all = append(all, shape{g.nodes, g.dual, []string{name}})
	}
	return all
}

// A limit is what this lab cannot do, whatever the proxy.
type limit struct{ tests, reason string }

var limits = []limit{
	{`\[Disruptive\]`, "restarts parts of nodes by SSH"},
	{`\[Feature:NetworkPolicy\]`, "needs a pod network with policies"},
	{`\[Feature:Networking-(IPv4|IPv6|DNS)\]`, "needs the Internet"},
	{`\[Feature:Networking-Performance\]`, "measures the pod network"},
	{`\[Feature:PerformanceDNS\]`, "measures the DNS server with 10,000 Services"},
	{`\[Feature:KubeProxyNFAcct\]`, "asks kube-proxy for its own iptables rules"},
}

// sctp is a limit where the kernel has none.
var sctp = limit{`\[Feature:SCTPConnectivity\]`, "this kernel has no SCTP sockets"}

// limitsHere are those of this machine.
func limitsHere() []limit {
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 132)
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		return append(limits, sctp)
	}
	if err == nil {
		_ = syscall.Close(s)
	}
	return limits
}

// alternatives joins regular expressions.
func alternatives(all ...string) string {
	var some []string
	for _, a := range all {
		if a != "" {
			some = append(some, a)
		}
	}
	return strings.Join(some, "|")
}

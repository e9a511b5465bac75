package main

import (
	"fmt"
	"os"
)

// Addresses of a cluster. All of it is in network namespaces of its own, so
// that two clusters may have the same.
const (
	outsideIP  = "172.30.0.1"
	outsideIP6 = "fd00:30::1"
	server     = "https://" + outsideIP + ":6443"
	dnsIP      = "10.96.0.10"
	// Clients of load balancers: in no node's subnet, so that tests can tell
	// whether their address was kept.
	clientIP  = "198.51.100.1"
	balancers = "172.30.1."
)

func nodeName(n int) string { return fmt.Sprintf("node%d", n) }
func nodeIP(n int) string   { return fmt.Sprintf("172.30.0.%d", 10+n) }
func nodeIP6(n int) string  { return fmt.Sprintf("fd00:30::%d", 10+n) }
func pods(n int) string     { return fmt.Sprintf("10.244.%d.0/24", n) }
func pods6(n int) string    { return fmt.Sprintf("fd00:10:244:%d::/64", n) }

// families joins the values of both, or is the first alone.
func (l *lab) families(v4, v6 string) string {
	if l.Dual {
		return v4 + "," + v6
	}
	return v4
}

func (l *lab) serviceCIDRs() string { return l.families("10.96.0.0/16", "fd00:10:96::/112") }
func (l *lab) podCIDRs() string     { return l.families("10.244.0.0/16", "fd00:10:244::/48") }

// dual is the line if the cluster has both families.
func (l *lab) dual(format string, args ...any) string {
	if !l.Dual {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// outside makes the network that joins the nodes: a bridge, and routes to the
// pods of each.
func (l *lab) outside() error {
	if err := executeAll(
		"ip link set lo up",
		"ip link add br0 type bridge", "ip addr add "+outsideIP+"/24 dev br0", "ip link set br0 up",
		"ip addr add "+clientIP+"/32 dev lo",
		l.dual("ip addr add %s/64 dev br0 nodad", outsideIP6),
	); err != nil {
		return err
	}
	for n := 1; n <= l.Nodes; n++ {
		if err := executeAll(
			fmt.Sprintf("ip route add %s via %s", pods(n), nodeIP(n)),
			l.dual("ip route add %s via %s", pods6(n), nodeIP6(n)),
		); err != nil {
			return err
		}
	}
	// By ports, too: connections of one client spread over the nodes.
	return sysctls(map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/ipv4/fib_multipath_hash_policy": "1"})
}

// cable joins a node, given by a process of its network namespace, to the
// bridge.
func (l *lab) cable(n, pid int) error {
	return executeAll(
		fmt.Sprintf("ip link add n%d type veth peer name eth0 netns %d", n, pid),
		fmt.Sprintf("ip link set n%d master br0 up", n))
}

// nodeNetwork makes the rest of it, in the node's own network namespace. Pods
// are routed and never masqueraded, as with the simplest of CNIs.
func (l *lab) nodeNetwork(n int) error {
	lines := []string{
		"ip link set lo up",
		fmt.Sprintf("ip addr add %s/24 dev eth0", nodeIP(n)),
		l.dual("ip addr add %s/64 dev eth0 nodad", nodeIP6(n)),
		"ip link set eth0 up",
		"ip route add default via " + outsideIP,
		l.dual("ip route add default via %s", outsideIP6),
	}
	for other := 1; other <= l.Nodes; other++ {
		if other != n {
			lines = append(lines,
				fmt.Sprintf("ip route add %s via %s", pods(other), nodeIP(other)),
				l.dual("ip route add %s via %s", pods6(other), nodeIP6(other)))
		}
	}
	if err := executeAll(lines...); err != nil {
		return err
	}
	return sysctls(map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1",
		"net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0"})
}

// sysctls sets some of this network namespace.
func sysctls(values map[string]string) error {
	for name, value := range values {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

package traffic

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// TopologyNames are the built-in topologies, each with what it is.
func TopologyNames() map[string]string {
	return map[string]string{
		"node":  "one node, with a client pod and three server pods",
		"pair":  "a client, a node that forwards, and a server behind it",
		"zones": "three nodes in two zones, each with a server pod, and a router; the client is beyond the router",
		"vxlan": "two nodes with a router between, each with pods; what goes between pods goes through a VXLAN",
	}
}

// BuiltinTopology returns the spec of a built-in topology.
func BuiltinTopology(name, runName string) (TopologySpec, error) {
	spec := TopologySpec{Name: runName}
	switch name {
	case "node":
		spec.nodeTopology()
	case "pair":
		spec.pairTopology()
	case "zones":
		spec.zonesTopology()
	case "vxlan":
		spec.vxlanTopology()
	default:
		var names []string
		for n := range TopologyNames() {
			names = append(names, n)
		}
		slices.Sort(names)
		return spec, fmt.Errorf("no built-in topology is named %q: there are %s", name, strings.Join(names, ", "))
	}
	return spec, nil
}

func (s *TopologySpec) nodeTopology() {
	s.addNode("node-a", "zone-a", 1)
	s.addPod("client", "node-a", 100, 0)
	for i := range 3 {
		s.addServerPod(fmt.Sprintf("server-%d", i+1), "node-a", i+1)
	}
	s.Client = "client"
}

func (s *TopologySpec) pairTopology() {
	s.addNode("node-a", "zone-a", 1)
	s.addClient("node-a")
	s.addServerPod("server", "node-a", 1)
}

func (s *TopologySpec) zonesTopology() {
	s.addRouter()
	for i, node := range []string{"node-a", "node-b", "node-c"} {
		zone := map[bool]string{true: "zone-a", false: "zone-b"}[i < 2]
		s.addNode(node, zone, i+1)
		s.Links = append(s.Links, Link{A: "router", B: node})
		s.addServerPod(fmt.Sprintf("server-%d", i+1), node, i+1)
	}
	s.addClient("router")
}

// vxlanMTU leaves room for the headers of VXLAN, over IPv4, in 1,500 bytes.
const vxlanMTU = 1450

func (s *TopologySpec) vxlanTopology() {
	s.addRouter()
	for i, node := range []string{"node-a", "node-b"} {
		s.addNode(node, "zone-a", i+1)
		s.Links = append(s.Links, Link{A: "router", B: node})
		s.addServerPod(fmt.Sprintf("server-%d", i+1), node, i+1)
	}
	s.addPod("client", "node-a", 100, vxlanMTU)
	s.Client = "client"
	for i, l := range s.Links {
		if s.machine(l.B).Node != "" {
			s.Links[i].MTU = vxlanMTU
		}
	}
	s.Links = append(s.Links, Link{A: "node-a", B: "node-b", VXLAN: 42, MTU: vxlanMTU})
}

// The addresses are of the ranges for documentation where there is one client
// or node, else of private ones. Pods of node n have 10.<9+n>.0.0/16.

func (s *TopologySpec) addNode(name, zone string, n int) {
	s.Machines = append(s.Machines, Machine{
		Name: name, Zone: zone, Forwards: true,
		Addrs: []netip.Addr{addr4(192, 0, 2, 10+n), addr6("2001:db8::%x", 0x10+n)},
	})
}

func (s *TopologySpec) addRouter() {
	s.Machines = append(s.Machines, Machine{
		Name: "router", Forwards: true, Addrs: []netip.Addr{addr4(192, 0, 2, 1), addr6("2001:db8::%x", 1)},
	})
}

// sourcePrefixes are the client's, besides its own addresses.
var sourcePrefixes = []netip.Prefix{netip.MustParsePrefix("10.250.0.0/16"), netip.MustParsePrefix("fd00:250::/64")}

// addClient adds a client that is no pod.
func (s *TopologySpec) addClient(next string) {
	s.Machines = append(s.Machines, Machine{
		Name: "client", Addrs: []netip.Addr{addr4(203, 0, 113, 1), addr6("2001:db8:c::%x", 1)}, Prefixes: sourcePrefixes, Gateway: next,
	})
	s.Links = append(s.Links, Link{A: next, B: "client"})
	s.Client = "client"
}

func (s *TopologySpec) addPod(name, node string, host, mtu int) {
	at := s.machine(node)
	n := int(at.Addrs[0].As4()[3]) - 10
	m := Machine{
		Name: name, Zone: at.Zone, Node: node, Gateway: node,
		Addrs: []netip.Addr{addr4(10, 9+n, 0, host), addr6("fd00:%x::%x", 9+n, host)},
	}
	if name == "client" {
		m.Prefixes = sourcePrefixes
	}
	s.Machines = append(s.Machines, m)
	s.Links = append(s.Links, Link{A: node, B: name, MTU: mtu})
}

// addServerPod adds the k-th pod for servers, which has 65,534 addresses for
// them.
func (s *TopologySpec) addServerPod(name, node string, k int) {
	s.addPod(name, node, k, 0)
	m := &s.Machines[len(s.Machines)-1]
	m.Prefixes = []netip.Prefix{
		netip.PrefixFrom(addr4(10, 100+k, 0, 0), 16), netip.PrefixFrom(addr6("fd00:100:%x::", k), 64),
	}
	s.Servers = append(s.Servers, name)
}

// ServerAddr returns the addresses of the i-th server, IPv4 and IPv6: servers
// are spread over the machines for them. The name of the machine comes with
// them.
func (s TopologySpec) ServerAddr(i int) (machine string, addrs []netip.Addr) {
	m := s.machine(s.Servers[i%len(s.Servers)])
	host := i/len(s.Servers) + 1
	for _, p := range m.Prefixes {
		b := p.Addr().AsSlice()
		b[len(b)-2], b[len(b)-1] = byte(host>>8), byte(host)
		a, _ := netip.AddrFromSlice(b)
		addrs = append(addrs, a)
	}
	return m.Name, addrs
}

func addr4(a, b, c, d int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(c), byte(d)})
}

func addr6(format string, args ...any) netip.Addr {
	a, _ := netip.ParseAddr(fmt.Sprintf(format, args...)) // a topology that is not made says so
	return a
}

package contender

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/rules"
)

// Ports of Services and of servers.
const (
	servicePort  = 80
	askedPort    = 8080 // of the servers of the asked Service: each says who it is
	wildcardPort = 8081 // of all others, which listen on every address of a machine
	// wildcardPorts is how many there are from that one on: a topology has fewer
	// addresses than there may be endpoints.
	wildcardPorts = 8
)

// addressesATopology is how many addresses for servers a topology has at least.
const addressesATopology = 60_000

// Limits of what is brought up.
const (
	maxServices  = 60_000
	maxEndpoints = addressesATopology * wildcardPorts // of all Services
	maxAsked     = 5_000                              // of one: servers with a socket of their own
)

// nets are where the addresses of a family are.
type nets struct {
	services netip.Prefix // what clients ask
	cluster  netip.Prefix // ClusterIPs of Services that are asked at another address
	// pods is what rules take for addresses of pods: what comes from elsewhere
	// is masqueraded.
	pods netip.Prefix
}

// netsOf returns those of a family.
func netsOf(ipv6 bool) nets {
	if ipv6 {
		return nets{netip.MustParsePrefix("fd00:96::/112"), netip.MustParsePrefix("fd00:97::/112"), netip.MustParsePrefix("fd00::/16")}
	}
	return nets{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("10.0.0.0/8")}
}

// service is a Service of one address and port.
type service struct {
	name string
	rules.Service
}

// asked is the number of the Service that is asked if only one is: rules that are
// walked meet it half-way.
func asked(services int) int { return services / 2 }

// newServices returns Services with endpoints of their own: no two share one, so
// nobody gains by having found that they are the same.
func newServices(topology traffic.TopologySpec, spec Spec) []service {
	protocol, family := "tcp", 0
	if spec.UDP {
		protocol = "udp"
	}
	if spec.IPv6 {
		family = 1
	}
	all := make([]service, spec.Services)
	for i := range all {
		all[i].name = fmt.Sprintf("service-%05d", i)
		all[i].Protocol, all[i].Addr = protocol, netip.AddrPortFrom(nth(netsOf(spec.IPv6).services.Addr(), i+1), servicePort)
		for k := range spec.Endpoints {
			n, port := spec.Endpoints+i*spec.Endpoints+k, wildcardPort
			if i == asked(spec.Services) {
				n, port = k, askedPort
			} else {
				n, port = n%addressesATopology, port+n/addressesATopology
			}
			_, addrs := topology.ServerAddr(n)
			all[i].Endpoints = append(all[i].Endpoints, netip.AddrPortFrom(addrs[family], uint16(port)))
		}
	}
	return all
}

// ruled are the Services as rules want them.
func ruled(services []service) []rules.Service {
	list := make([]rules.Service, len(services))
	for i, s := range services {
		list[i] = s.Service
	}
	return list
}

// nth returns the address n behind an address whose last two bytes are free.
func nth(first netip.Addr, n int) netip.Addr {
	b := first.AsSlice()
	b[len(b)-2], b[len(b)-1] = b[len(b)-2]+byte(n>>8), byte(n)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// targets returns what clients ask: each Service once in random order, or the one
// in the middle. Without a load balancer these are endpoints themselves.
func targets(services []service, one, direct bool) []netip.AddrPort {
	if one {
		s := services[asked(len(services))]
		if direct {
			return s.Endpoints
		}
		return []netip.AddrPort{s.Addr}
	}
	list := make([]netip.AddrPort, len(services))
	for i, s := range services {
		list[i] = s.Addr
		if direct {
			list[i] = s.Endpoints[i%len(s.Endpoints)]
		}
	}
	if direct && len(services) == 1 {
		list = services[0].Endpoints
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	return list
}

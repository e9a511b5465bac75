package main

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Where generated things live. All of it is local to the namespace, so that a
// connect() to any of them takes the same way with a program and without.
var (
	serviceNet4 = netip.MustParseAddr("10.96.0.0")
	serviceNet6 = netip.MustParseAddr("fd00:96::")
	backendNet4 = netip.MustParseAddr("10.128.0.0")
	backendNet6 = netip.MustParseAddr("fd00:128::")
	foreignNet4 = netip.MustParseAddr("10.224.0.0")
	foreignNet6 = netip.MustParseAddr("fd00:224::")
	sourceAddr4 = netip.MustParseAddr("10.0.0.1")
	sourceAddr6 = netip.MustParseAddr("fd00::1")
)

// Ports of Services, and of the backends behind them.
const (
	servicePort = 80
	backendPort = 8080
)

// nth returns the address n behind the first of a network.
func nth(first netip.Addr, n int) netip.Addr {
	b := first.As16()
	for i := 15; n > 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	return netip.AddrFrom16(b).Unmap()
}

// flavour is a protocol and a family, with its networks.
type flavour struct {
	name     string
	key      string
	kind     int // of sockets
	protocol lb.Protocol
	service  netip.Addr
	backend  netip.Addr
	foreign  netip.Addr

	algorithm lb.Algorithm // the default one unless set, see by
}

// by is a flavour of Services with an algorithm.
func (f flavour) by(a lb.Algorithm) flavour {
	f.name += ", " + a.String()
	f.key += "-" + a.String()
	f.algorithm = a
	return f
}

var (
	udp4 = flavour{"UDP, IPv4", "udp4", unix.SOCK_DGRAM, lb.UDP, serviceNet4, backendNet4, foreignNet4, 0}
	udp6 = flavour{"UDP, IPv6", "udp6", unix.SOCK_DGRAM, lb.UDP, serviceNet6, backendNet6, foreignNet6, 0}
	tcp4 = flavour{"TCP, IPv4", "tcp4", unix.SOCK_STREAM, lb.TCP, serviceNet4, backendNet4, foreignNet4, 0}
	tcp6 = flavour{"TCP, IPv6", "tcp6", unix.SOCK_STREAM, lb.TCP, serviceNet6, backendNet6, foreignNet6, 0}

	flavours = []flavour{udp4, udp6, tcp4, tcp6}
)

func serviceName(i int) lb.ServiceName {
	return lb.ServiceName{Namespace: "default", Name: fmt.Sprintf("service-%05d", i)}
}

// frontends returns what a Service with one family and port is made into.
func frontends(f flavour, service, backends int) []lb.Frontend {
	out := lb.Frontend{Port: "port", Policy: lb.Policy{Algorithm: f.algorithm}}
	out.AddrPort = lb.AddrPort{Addr: nth(f.service, service+1), Port: servicePort, Protocol: f.protocol}
	for k := range backends {
		b := lb.AddrPort{Addr: nth(f.backend, service*backends+k+1), Port: backendPort, Protocol: f.protocol}
		out.Views[lb.Internal].Backends = append(out.Views[lb.Internal].Backends, b)
	}
	out.Views[lb.External], out.Members = out.Views[lb.Internal], out.Views[lb.Internal].Backends
	return []lb.Frontend{out}
}

// plainService returns the most common Service, of one family and port, with
// its slice: what the parts about the agent are measured with.
func plainService(i, endpoints int) (*lb.Service, *lb.Slice) {
	name := serviceName(i)
	svc := &lb.Service{
		ServiceName: name,
		ClusterIPs:  []netip.Addr{nth(serviceNet4, i+1)},
		Ports:       []lb.ServicePort{{Name: "http", Protocol: lb.TCP, Port: servicePort}},
	}
	slice := &lb.Slice{
		SliceName: lb.SliceName{Namespace: name.Namespace, Name: name.Name + "-abcde"}, Service: name.Name,
		Ports: []lb.SlicePort{{Name: "http", Protocol: lb.TCP, Port: backendPort}},
	}
	for k := range endpoints {
		slice.Endpoints = append(slice.Endpoints, endpoint(nth(backendNet4, i*endpoints+k+1)))
	}
	return svc, slice
}

func endpoint(a netip.Addr) lb.Endpoint {
	return lb.Endpoint{Addr: a, Ready: true, Serving: true, Where: lb.Topology{Node: "node-b"}.Share()}
}

// plainServices returns many of them as the first update of a source.
func plainServices(services, endpoints int) lb.Update {
	u := lb.Update{
		Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{},
		Node: &lb.Node{Name: "node-a", Zone: "zone-a"},
	}
	for i := range services {
		svc, slice := plainService(i, endpoints)
		u.Services[svc.ServiceName], u.Slices[slice.SliceName] = svc, slice
	}
	return u
}

package netns_test

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// setDNS makes Service "dns" what its endpoints make of it, and tells sockets of lost backends.
func (n *node) setDNS(vip string, endpoints ...lb.Endpoint) {
	n.tb.Helper()
	svc := &lb.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: "dns"}, ClusterIPs: []netip.Addr{at(vip).Addr()},
		Ports: []lb.ServicePort{{Protocol: lb.UDP, Port: at(vip).Port()}}}
	slice := &lb.Slice{Service: "dns", Ports: []lb.SlicePort{{Protocol: lb.UDP, Port: 5353}}, Endpoints: endpoints}
	n.set("dns", lb.Frontends(svc, []*lb.Slice{slice}, lb.Node{Name: "node-1"})...)
	n.sweep()
	n.destroyLost()
}

// endpoint is that of a backend. An unready one does not serve.
func (b *backend) endpoint(ready bool) lb.Endpoint {
	return lb.Endpoint{Addr: b.at.Addr, Ready: ready, Serving: ready}
}

// A readiness probe that fails for a moment must not end the sockets of a Service with one endpoint.
func TestUDPSocketsKeepTheirBackendWhileNoEndpointServes(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		vip, one, two := udpVIP(k, 1), udpBackend(t, k, 1), udpBackend(t, k, 2)
		n.setDNS(vip, one.endpoint(true))
		connected, other := mustTalk(t, k, unix.SOCK_DGRAM, vip), mustSocket(t, k, unix.SOCK_DGRAM)
		other.ask(at(vip))
		want := func(when string, b *backend) {
			t.Helper()
			if connected.wantAlive(t, when); t.Failed() {
				t.FailNow()
			}
			connected.s.wantPeer(at(vip), when)
			if who := other.ask(at(vip)); who != b.name() {
				t.Errorf("%s: %q answers the socket that is not connected, want %q", when, who, b.name())
			}
		}
		n.setDNS(vip, one.endpoint(false))
		want("the only endpoint is unready", one)
		if err := mustSocket(t, k, unix.SOCK_DGRAM).connect(at(vip)); err != unix.ECONNREFUSED {
			t.Errorf("a new socket: connect() says %v, want ECONNREFUSED", err)
		}
		n.setDNS(vip, one.endpoint(false), two.endpoint(false))
		want("another unready endpoint", one)
		n.setDNS(vip, one.endpoint(true), two.endpoint(false))
		want("ready again", one)
		n.setDNS(vip, one.endpoint(false), two.endpoint(true))
		connected.s.wantAnswerOf(two, at(vip), "another endpoint serves")
		if who := other.ask(at(vip)); who != two.name() {
			t.Errorf("another endpoint serves: %q answers, want %q", who, two.name())
		}

		n.setDNS(vip)
		if !connected.s.ended() { // its address has no route
			t.Error("the endpoint has left: the connected socket was not told")
		}
	})
}

package netns_test

import (
	"maps"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// nodeAddresses are what the tests say the node has.
var nodeAddresses = map[string]plan.AddressKind{
	"192.0.2.1": plan.NodeAddress, "192.0.2.2": plan.NodeAddress, "2001:db8::1": plan.NodeAddress,
	"127.0.0.1": plan.LoopbackAddress, "::1": plan.LoopbackAddress,
}

// mustNodePort makes a node with NodePort 30080 of both families and protocols,
// and returns the backends by kind of socket and protocol.
func mustNodePort(t *testing.T, addresses map[string]plan.AddressKind) func(k kind, protocol string) *backend {
	t.Helper()
	n := mustNode(t)
	n.setAddresses(addresses)
	backends := map[string]*backend{}
	for _, protocol := range []string{"TCP", "UDP"} {
		v4, v6 := mustServe(t, "10.244.0.1:8080/"+protocol), mustServe(t, "[fd00:244::1]:8080/"+protocol)
		n.set("web-"+protocol, frontend("0.0.0.0:30080/"+protocol, v4), frontend("[::]:30080/"+protocol, v6))
		backends[inet.name+protocol], backends[mapped.name+protocol], backends[inet6.name+protocol] = v4, v4, v6
	}
	return func(k kind, protocol string) *backend { return backends[k.name+protocol] }
}

// wantAnswer checks who answers on an address, by TCP and by both ways of UDP.
func wantAnswer(t *testing.T, k kind, address string, want func(protocol string) *backend) {
	t.Helper()
	if _, who := dialTCP(t, k, at(address)); who != want("TCP").name() {
		t.Errorf("a TCP socket of %s to %s comes to %q, want %q", k.name, address, who, want("TCP").name())
	}
	s := mustSocket(t, k, unix.SOCK_DGRAM)
	if who := s.ask(at(address)); who != want("UDP").name() {
		t.Errorf("a UDP socket of %s to %s comes to %q, want %q", k.name, address, who, want("UDP").name())
	}
	s.mustConnect(at(address))
	s.wantPeer(at(address), "connected to "+address)
	s.send("who")
	if who, _ := s.receive(); who != want("UDP").name() {
		t.Errorf("a connected UDP socket of %s to %s comes to %q, want %q", k.name, address, who, want("UDP").name())
	}
}

// mustServeBoth starts servers of both protocols at an address.
func mustServeBoth(t *testing.T, address string) func(protocol string) *backend {
	t.Helper()
	servers := map[string]*backend{"TCP": mustServe(t, address+"/TCP"), "UDP": mustServe(t, address+"/UDP")}
	return func(protocol string) *backend { return servers[protocol] }
}

func TestANodePortAnswersOnEveryAddressOfTheNode(t *testing.T) {
	backendOf := mustNodePort(t, nodeAddresses)
	for _, c := range []struct {
		k         kind
		addresses []string
	}{
		{inet, []string{"192.0.2.1:30080", "192.0.2.2:30080", "127.0.0.1:30080"}},
		{mapped, []string{"192.0.2.1:30080", "192.0.2.2:30080", "127.0.0.1:30080"}},
		{inet6, []string{"[2001:db8::1]:30080", "[::1]:30080"}},
	} {
		for _, address := range c.addresses {
			wantAnswer(t, c.k, address, func(protocol string) *backend { return backendOf(c.k, protocol) })
		}
	}
}

func TestANodePortLeavesOtherAddressesAlone(t *testing.T) {
	mustNodePort(t, nodeAddresses)
	for address, k := range map[string]kind{
		"192.0.2.9:30080": inet, "[2001:db8::9]:30080": inet6, // foreign
		"127.0.0.2:30080": inet,                          // loopback, but not the address
		"192.0.2.1:30081": inet, "127.0.0.1:30081": inet, // another port
	} {
		if address == "192.0.2.1:30081" {
			testenv.AddAddress(t, "192.0.2.1")
		}
		wantAnswer(t, k, address, mustServeBoth(t, address))
	}
}

func TestANodePortLeavesLoopbackAloneWhereTheSettingIsOff(t *testing.T) {
	mustNodePort(t, map[string]plan.AddressKind{"192.0.2.1": plan.NodeAddress, "2001:db8::1": plan.NodeAddress})
	for address, k := range map[string]kind{"127.0.0.1:30080": inet, "[::1]:30080": inet6} {
		wantAnswer(t, k, address, mustServeBoth(t, address))
	}
}

// In a pod 127.0.0.1 is the pod itself, and an address of the node is still
// that of the node.
func TestANodePortIsNotOnLoopbackOfAnotherNetworkNamespace(t *testing.T) {
	backendOf := mustNodePort(t, nodeAddresses)
	for address, k := range map[string]kind{"127.0.0.1:30080": inet, "[::1]:30080": inet6} {
		t.Run("the local server answers on "+address, func(t *testing.T) {
			testenv.EnterNetns(t)
			wantAnswer(t, k, address, mustServeBoth(t, address))
		})
	}
	for address, k := range map[string]kind{"192.0.2.1:30080": inet, "[2001:db8::1]:30080": inet6} {
		t.Run("a backend answers on "+address, func(t *testing.T) {
			testenv.EnterNetns(t)
			there := backendOf(k, "TCP")
			here := mustServe(t, there.at.String()) // where this namespace has its route to
			if _, who := dialTCP(t, k, at(address)); who != here.name() {
				t.Errorf("%q answers, want %q", who, here.name())
			}
		})
	}
}

// wantLoopbackAnswer checks who answers a socket that asks for the unspecified address,
// by TCP and by both ways of UDP. What it sees as its peer is loopback.
func wantLoopbackAnswer(t *testing.T, k kind, want func(protocol string) *backend) {
	t.Helper()
	wantUnspecifiedAnswer(t, k, at(k.pick("127.0.0.1:30080", "[::1]:30080")), want, func(s *socket) {})
}

// wantUnspecifiedAnswer does so with a peer, and with sockets that are made ready first.
func wantUnspecifiedAnswer(t *testing.T, k kind, peer netip.AddrPort, want func(protocol string) *backend, ready func(s *socket)) {
	t.Helper()
	address := at(k.pick("0.0.0.0:30080", "[::]:30080"))
	stream, connected, datagram := mustSocket(t, k, unix.SOCK_STREAM), mustSocket(t, k, unix.SOCK_DGRAM), mustSocket(t, k, unix.SOCK_DGRAM)
	for _, s := range []*socket{stream, connected, datagram} {
		ready(s)
	}
	for protocol, s := range map[string]*socket{"TCP": stream, "UDP": connected} {
		s.mustConnect(address)
		s.wantPeer(peer, "connected to "+address.String())
		if protocol == "UDP" {
			s.send("who")
		}
		if who, _ := s.receive(); who != want(protocol).name() {
			t.Errorf("a connected %s socket of %s to %s comes to %q, want %q", protocol, k.name, address, who, want(protocol).name())
		}
	}
	if err := datagram.sendTo(address, "who"); err != nil {
		t.Fatal(err)
	}
	if who, from := datagram.receive(); who != want("UDP").name() || from != k.of(peer) {
		t.Errorf("a datagram of %s to %s comes to %q, the answer from %s; want %q and %s", k.name, address, who, from, want("UDP").name(), peer)
	}
}

func TestTheUnspecifiedAddressIsLoopbackOfTheNode(t *testing.T) {
	backendOf := mustNodePort(t, nodeAddresses)
	for _, k := range kinds {
		wantLoopbackAnswer(t, k, func(protocol string) *backend { return backendOf(k, protocol) })
	}
}

// TestTheUnspecifiedAddressIsThatOfTheSocket as it is to the kernel, where an IPv4 socket
// has one. An IPv6 socket means loopback all the same.
func TestTheUnspecifiedAddressIsThatOfTheSocket(t *testing.T) {
	addresses := maps.Clone(nodeAddresses)
	addresses["127.0.0.2"] = plan.LoopbackAddress
	backendOf := mustNodePort(t, addresses)
	wantAll := func(want func(k kind, protocol string) *backend) {
		t.Helper()
		for _, k := range kinds {
			own, peer := at(k.pick("127.0.0.2:0", "[::1]:0")), at(k.pick("127.0.0.2:30080", "[::1]:30080"))
			wantUnspecifiedAnswer(t, k, peer, func(protocol string) *backend { return want(k, protocol) }, func(s *socket) {
				if err := unix.Bind(s.fd, s.sockaddr(own)); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	wantAll(backendOf)
	testenv.EnterNetns(t) // a pod, where the kernel decides
	v4, v6 := mustServeBoth(t, "127.0.0.2:30080"), mustServeBoth(t, "[::1]:30080")
	wantAll(func(k kind, protocol string) *backend {
		if k == inet6 {
			return v6(protocol)
		}
		return v4(protocol)
	})
}

func TestTheUnspecifiedAddressIsLoopbackOfAPod(t *testing.T) {
	mustNodePort(t, nodeAddresses)
	testenv.EnterNetns(t)
	wantLocalAnswers(t)
}

func TestTheUnspecifiedAddressIsLoopbackWhereNoAddressHasNodePorts(t *testing.T) {
	mustNodePort(t, map[string]plan.AddressKind{})
	wantLocalAnswers(t)
}

// wantLocalAnswers checks that servers on loopback answer who asks for the unspecified
// address.
func wantLocalAnswers(t *testing.T) {
	t.Helper()
	v4, v6 := mustServeBoth(t, "127.0.0.1:30080"), mustServeBoth(t, "[::1]:30080")
	wantLoopbackAnswer(t, inet, v4)
	wantLoopbackAnswer(t, mapped, v4)
	wantLoopbackAnswer(t, inet6, v6)
}

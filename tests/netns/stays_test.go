package netns_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// leaving is a frontend whose first backend is a member that clients on the node choose no more.
func leaving(vip string, backends ...*backend) lb.Frontend {
	f := knowing(vip, backends...)
	f.Views[lb.Internal] = frontend(vip, backends[1:]...).Views[lb.Internal]
	return f
}

// age has it look as if a socket with one entry had last used it so much earlier.
func (n *node) age(s *socket, by time.Duration) {
	n.tb.Helper()
	const lastUse, unit = 8 + 19, 1 << 34 // the last byte of the frontend, behind owner or next
	name, key := "socket_nat", uint32(s.cookie())&(n.cfg.SocketEntries-1)
	if n.cfg.SocketEntries == 1 {
		name, key = "stored_entries", uint32(s.fd)
	}
	m := mustPinned(n.tb, filepath.Join(n.cfg.Root, "maps", name))
	value := make([]byte, m.ValueSize())
	if err := m.Lookup(key, value); err != nil {
		n.tb.Fatal(err)
	}
	value[lastUse] -= byte(by / unit)
	if err := m.Put(key, value); err != nil {
		n.tb.Fatal(err)
	}
}

func TestAnUnconnectedUDPSocketStaysWithAMemberWhileItUsesItsEntry(t *testing.T) {
	const short, long = 160 * time.Second, 210 * time.Second // the time-out is 180 s
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		vip, one, two := udpVIP(k, 1), udpBackend(t, k, 1), udpBackend(t, k, 2)
		n.set("dns", knowing(vip, one))
		s, connected := mustSocket(t, k, unix.SOCK_DGRAM), mustSocket(t, k, unix.SOCK_DGRAM)
		connected.mustConnect(at(vip))
		send := func(s *socket, text string) {
			t.Helper()
			if err := s.sendTo(at(vip), text); err != nil {
				t.Fatal(err)
			}
		}
		want := func(when string, s *socket, b *backend) {
			t.Helper()
			for range 2 {
				if who := s.ask(at(vip)); who != b.name() {
					t.Errorf("%s: %q answers, want %q", when, who, b.name())
				}
			}
		}
		want("chosen", s, one)
		asking := mustSocket(t, k, unix.SOCK_DGRAM)
		send(asking, "who")
		n.set("dns", knowing(vip, one, two))
		n.age(s, long)
		want("silent, and still in the view", s, one)

		n.set("dns", leaving(vip, one, two))
		n.sweep()
		want("a member only", s, one)
		want("a new socket", mustSocket(t, k, unix.SOCK_DGRAM), two)
		for range 2 { // a datagram that is sent ends the silence
			n.age(asking, short)
			send(asking, "who")
		}
		for range 3 {
			if who, _ := asking.receive(); who != one.name() {
				t.Errorf("silent for a short time: %q answers, want %q", who, one.name())
			}
		}
		n.age(s, -1<<34)
		want("another CPU is ahead", s, one)
		send(s, "hold")
		n.age(s, short)
		close(one.hold)
		s.receive() // so does one that is received
		n.age(s, short)
		want("short after an answer", s, one)
		n.age(connected, long)
		want("connected and silent", connected, one)
		n.age(s, long)
		want("silent for a long time", s, two)

		n.set("dns", knowing(vip, one))
		n.sweep()
		want("no member any more", s, one)
	})
}

func TestAnUnconnectedUDPSocketStaysWithAnEndpointThatGetsNothingNew(t *testing.T) {
	for how, is := range map[string]string{
		"it terminates":         "conditions: {ready: false, serving: true, terminating: true}",
		"it is of another zone": "conditions: {ready: true}, hints: {forZones: [{name: zone-b}]}",
	} {
		for _, k := range []kind{inet, inet6} {
			t.Run(how+", "+k.name, func(t *testing.T) { staysWithEndpoint(t, k, is) })
		}
	}
}

func staysWithEndpoint(t *testing.T, k kind, is string) {
	vip, one, two := at(udpVIP(k, 1)), udpBackend(t, k, 1), udpBackend(t, k, 2)
	slice := func(endpoints string) string {
		return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dns-1, namespace: default, labels: {kubernetes.io/service-name: dns}}
addressType: %s
ports: [{name: main, port: 5353, protocol: UDP}]
endpoints:
%s`, k.pick("IPv4", "IPv6"), endpoints)
	}
	endpoint := func(b *backend, is string) string { return fmt.Sprintf("- {addresses: [%q], %s}\n", b.at.Addr, is) }
	ready := "conditions: {ready: true}, hints: {forZones: [{name: zone-a}]}"
	a := testenv.NewAgent(t, map[string]string{
		"node.yaml": "apiVersion: v1\nkind: Node\nmetadata: {name: node-a, labels: {topology.kubernetes.io/zone: zone-a}}\n",
		"dns.yaml": fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: dns, namespace: default}
spec: {type: ClusterIP, clusterIP: %q, clusterIPs: [%[1]q], ports: [{name: main, port: 53, protocol: UDP}]}
`, vip.Addr()),
		"slice.yaml": slice(endpoint(one, ready)),
	})
	a.Start()
	s := mustSocket(t, k, unix.SOCK_DGRAM)
	s.ask(vip)
	a.Write("slice.yaml", slice(endpoint(one, is)+endpoint(two, ready)))
	eventually(t, "new sockets get the other endpoint", func() bool {
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		defer s.close()
		return s.ask(vip) == two.name()
	})
	for range 3 {
		if who := s.ask(vip); who != one.name() {
			t.Errorf("%q answers, want %q", who, one.name())
		}
		time.Sleep(time.Second)
	}
	a.Write("slice.yaml", slice(endpoint(two, ready)))
	eventually(t, "the socket leaves an endpoint that is gone", func() bool { return s.ask(vip) == two.name() })
}

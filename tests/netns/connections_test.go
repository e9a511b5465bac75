package netns_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// wantConnections compares how many connections of Service default/name began, and how many
// with backends: each backend is of that Service alone.
func (n *node) wantConnections(what, name string, want uint64) {
	n.tb.Helper()
	n.inspect(func(i *datapath.Reader) error {
		var began, with uint64
		for id, s := range n.content().Services {
			if s.Name == name {
				c, err := i.Connections(id)
				if err != nil {
					return err
				}
				began += c
			}
		}
		for _, b := range i.Backends() {
			with += b.Connections
		}
		if began != want || with != want {
			n.tb.Errorf("%s: %d connections of the Service, %d with its backends, want %d", what, began, with, want)
		}
		return nil
	})
}

func TestAConnectionOfASocketCountsWhereItGetsABackend(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n, vip := mustNode(t), udpVIP(k, 1)
		n.set("dns", frontend(vip, udpBackend(t, k, 1), udpBackend(t, k, 2)))
		connected := mustSocket(t, k, unix.SOCK_DGRAM)
		connected.mustConnect(at(vip))
		n.wantConnections("connect()", "dns", 1)
		connected.send("who")
		connected.receive()
		n.wantConnections("datagrams of a connected socket", "dns", 1)
		s := mustSocket(t, k, unix.SOCK_DGRAM)
		for range 3 {
			s.ask(at(vip))
		}
		n.wantConnections("the first datagram of a socket", "dns", 2)
		connected.mustConnect(at(vip))
		n.wantConnections("connect() again", "dns", 3)
	})
}

// What is counted stays when an agent starts, and when maps grow; who gets the ID of a Service
// that is gone begins at 0.
func TestWhatIsCountedOutlivesAgentsAndMaps(t *testing.T) {
	cfg := config(t)
	n := mustNodeOf(t, cfg)
	b := mustServe(t, "10.244.0.1:8080/TCP")
	n.set("web", frontend(webVIP+"/TCP", b))
	const connections = 50
	for range connections {
		s, _ := dialTCP(t, inet, at(webVIP))
		s.close()
	}
	n.wantConnections("at first", "web", connections)
	n.dp.Close()
	n = mustNodeOf(t, cfg)
	n.wantConnections("after a restart", "web", connections)
	if err := n.dp.Reserve(plan.Sizes{Frontends: 64, Slots: 64, Backends: 64, Services: 64, Addresses: 64}); err != nil {
		t.Fatal(err)
	}
	n.wantConnections("in larger maps", "web", connections)
	s, _ := dialTCP(t, inet, at(webVIP))
	s.close()
	n.wantConnections("one more in larger maps", "web", connections+1)
	n.set("web")
	n.sweep()
	n.set("shop", frontend(shopVIP+"/TCP", b))
	n.wantConnections("by an ID that another had", "shop", 0)
}

package network

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/datapath"
)

// ejected returns the addresses of backends that clients of an edge avoid.
func (e *edges) ejected(edge int) (all []string) {
	e.tb.Helper()
	i, err := datapath.Inspect(e.nodes[edge].root)
	if err != nil {
		e.tb.Fatal(err)
	}
	defer i.Close()
	for _, b := range i.Backends() {
		if b.Ejected > 0 {
			all = append(all, b.At.Addr.String())
		}
	}
	return all
}

// awaitEjected waits until clients of both edges avoid just these backends.
func (e *edges) awaitEjected(when string, want ...string) {
	e.tb.Helper()
	for edge := range e.nodes {
		eventually(e.tb, fmt.Sprintf("%s: edge %d avoids %v", when, edge+1, want), func() error {
			if got := e.ejected(edge); fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("it avoids %v", got)
			}
			return nil
		})
	}
}

// answering asks the Service so often, and returns how often each backend answered.
func (e *edges) answering(t *testing.T, times int) map[string]int {
	t.Helper()
	by := map[string]int{}
	for range times {
		said, err := e.client.ask("tcp", e.at)
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(said, " ")
		by[name]++
	}
	return by
}

// TestABackendThatTakesNothingCarriedIsAvoided has a backend that answers at its own address, and lacks that of
// the Service for a while: what is carried to it is lost.
func TestABackendThatTakesNothingCarriedIsAvoided(t *testing.T) {
	e := newEdges(t)
	e.annotations = `, headgate.dev/probe: tcp, headgate.dev/probe-interval: "1"`
	e.options = []string{"--probes", "192.0.2.0/24"}
	e.serves(0, 1, 2)
	e.start()
	e.announce(0, 1)
	e.awaitEjected("at first")
	e.backends[0].do(func() error { return serviceAddress(netlink.AddrDel) })
	e.awaitEjected("without the address of the Service", backendAddr(0))
	if by := e.answering(t, 60); by["backend-1"] > 0 || by["backend-2"] == 0 || by["backend-3"] == 0 {
		t.Errorf("without the address at backend-1 %v answer", by)
	}
	e.backends[0].do(func() error { return serviceAddress(netlink.AddrAdd) })
	e.awaitEjected("with the address again")
	eventually(t, "it is asked again", func() error {
		if e.answering(t, 10)["backend-1"] == 0 {
			return errors.New("others answer")
		}
		return nil
	})
}

// TestAnEdgeThatWasCutOffTakesNoBackendForDead cuts an edge off for as long as all probes need to fail, and has all connections
// come to it at once when it is back: each goes on with the backend that it has.
func TestAnEdgeThatWasCutOffTakesNoBackendForDead(t *testing.T) {
	e := newEdges(t)
	e.annotations = `, headgate.dev/probe: tcp, headgate.dev/probe-interval: "1"`
	e.options = []string{"--probes", "192.0.2.0/24"}
	e.serves(0, 1, 2)
	e.start()
	e.awaitEjected("at first")
	e.announce(1)
	e.nodes[0].setUp("eth0", false)
	time.Sleep(6 * time.Second)
	if dead := e.ejected(0); len(dead) > 0 {
		t.Errorf("an edge that is cut off takes %v for dead", dead)
	}
	e.while(60, func() {
		e.nodes[0].setUp("eth0", true)
		e.nodes[0].route("0.0.0.0/0", "192.0.2.254")
		e.announce(0)
	}).wantNoneLost(t, "an edge is back")
}

// serviceAddress adds or removes the address of the Service of a backend outside.
func serviceAddress(change func(netlink.Link, *netlink.Addr) error) error {
	device, err := netlink.LinkByName("ipip0")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(edgeAt.Addr().String() + "/32")
	if err != nil {
		return err
	}
	return change(device, address)
}

package network

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
)

// newEdgesBeforeHomes makes edges before backends on which agents run, at another port than the Service's.
// With driven the drivers of edges and backends send packets, too.
func newEdgesBeforeHomes(tb testing.TB, driven bool) *edges {
	tb.Helper()
	e := newEdgesBefore(tb)
	e.at = netip.AddrPortFrom(edgeAt.Addr(), 80)
	for i, b := range e.backends {
		e.homes = append(e.homes, newEdgeNode(b, fmt.Sprint("backend-", i+1), backendAddr(i)))
	}
	var nodes strings.Builder
	for _, n := range slices.Concat(e.nodes[:], e.homes) {
		fmt.Fprintf(&nodes, "---\napiVersion: v1\nkind: Node\nmetadata: {name: %s}\nstatus: {addresses: [{type: InternalIP, address: %s}]}\n", n.name, n.addr)
		if driven {
			n.sumHere("eth0")
			e.router.takesXDP(n.name)
			e.router.sumHere(n.name)
		}
	}
	if err := os.WriteFile(filepath.Join(e.manifests, "nodes.yaml"), []byte(nodes.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	if driven {
		e.options = byDrivers
	}
	return e
}

// Where agents run on backends nothing is lost with an edge, nor with its agent while backends change: what
// comes to another edge is found by the owners of its slot.
func TestEdgesBeforeBackendsWithAnAgent(t *testing.T) {
	const connections = 60
	for _, driven := range []bool{false, true} {
		t.Run(map[bool]string{false: "by TC", true: "by drivers"}[driven], func(t *testing.T) {
			e := newEdgesBeforeHomes(t, driven)
			e.serves(0, 1, 2)
			e.start()
			e.announce(0, 1)
			kept := e.kept(0) + e.kept(1) // of what began before edges carried
			e.while(connections, func() { e.dies(0) }).wantNoneLost(t, "an edge dies")
			if now := e.kept(0) + e.kept(1); now > kept {
				t.Errorf("the edges keep %d flows, and kept %d before", now, kept)
			}
			e.comesBack(0)
			rng := rand.New(rand.NewPCG(1, 7))
			e.while(connections, func() { e.changes(rng) }).wantNoneLost(t, "backends change, and edges")
			for _, n := range e.nodes {
				if sent := n.counter(t, "carried_at_driver"); (sent > 0) != driven {
					t.Errorf("the driver of %s has carried %d packets", n.name, sent)
				}
			}
		})
	}
}

// carries returns an error where what begins at an edge would not be carried to each home.
func (e *edges) carries() error {
	if e.homes == nil {
		return nil
	}
	for _, n := range e.nodes {
		usable, err := n.usable()
		if err != nil {
			return err
		}
		for _, home := range e.homes {
			if !usable[home.addr] {
				return fmt.Errorf("%s does not carry to %s", n.name, home.name)
			}
		}
	}
	return nil
}

// usable returns which other nodes a node carries to, by their address.
func (n *node) usable() (map[netip.Addr]bool, error) {
	r, err := datapath.Inspect(n.root)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	at := map[netip.Addr]bool{}
	for _, p := range r.Peers() {
		at[p.Theirs] = p.Usable
	}
	return at, nil
}

// changes has backends come and drain, the router choose edges, and agents of all hosts killed and come again, once a second each.
func (e *edges) changes(rng *rand.Rand) {
	e.tb.Helper()
	agents := slices.Concat(e.nodes[:], e.homes)
	for second := range 8 {
		e.serves(some(rng)...)
		e.announce([][]int{{0}, {1}, {0, 1}}[rng.IntN(3)]...)
		time.Sleep(time.Second)
		switch n := agents[rng.IntN(len(agents))]; {
		case n.agent == nil:
			n.startAgent(e.manifests)
		case second%2 == 0:
			n.stop()
		}
	}
}

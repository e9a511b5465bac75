package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// nodeAt is a node at 192.0.2.n.
func nodeAt(name string, n byte) Node {
	a := netip.AddrFrom4([4]byte{192, 0, 2, n})
	return Node{Peer: Peer{Theirs: a, Ours: netip.AddrFrom4([4]byte{192, 0, 2, 100}), Ring: RingOf(name), MTU: 1500}, Addrs: []netip.Addr{a}}
}

func TestPeersComeBeforeTheHomesThatTheyAreAndGoAfterThem(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	f := carriedFrontend(t, numbered(0, 2), numbered(0, 2)) // on node-0 and node-1
	l.set(t, web, f)
	if len(l.model.Homes) != 0 {
		t.Errorf("homes %v before any node is known", l.model.Homes)
	}
	l.apply(t, l.SetPeers("node-0", map[string]Node{"node-0": nodeAt("node-0", 100), "node-1": nodeAt("node-1", 1)}))
	wantOps(t, l.ops, fmt.Sprintf(`
put peer 1 to 192.0.2.100 from 192.0.2.100 ring %x mtu 1500
put peer address 192.0.2.100 1
put peer 2 to 192.0.2.1 from 192.0.2.100 ring %x mtu 1500
put peer address 192.0.2.1 2
put home 1 1
put home 2 2
`, RingOf("node-0"), RingOf("node-1")))
	l.apply(t, l.SetPeers("node-0", map[string]Node{"node-0": nodeAt("node-0", 100)}))
	wantOps(t, l.ops, "put home 2 0\ndelete peer address 192.0.2.1\n")
	l.apply(t, l.Sweep())
	wantOps(t, l.ops, "grace\nclear peer 2\n")
}

func TestAHomeIsWrittenBeforeASlotNamesItsBackend(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	l.apply(t, l.SetPeers("node-0", map[string]Node{"node-0": nodeAt("node-0", 100), "node-1": nodeAt("node-1", 1)}))
	l.set(t, web, carriedFrontend(t, numbered(0, 1), numbered(0, 1)))
	l.set(t, web, carriedFrontend(t, numbered(0, 2), numbered(0, 2)))
	written := false
	for _, op := range l.ops {
		switch op.(type) {
		case PutHome:
			written = true
		case PutSlots, PutTable:
			if !written {
				t.Fatalf("slots come before the home:\n%s", text(l.ops))
			}
		}
	}
	if !written {
		t.Errorf("no home is written:\n%s", text(l.ops))
	}
}

// A peer changes in place by what may change while it is in use; with another address it is
// another peer.
func TestAPeerInUseStaysTheSameNode(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	all := map[string]Node{"node-0": nodeAt("node-0", 100), "node-1": nodeAt("node-1", 1)}
	l.apply(t, l.SetPeers("node-0", all))
	usable := nodeAt("node-1", 1)
	usable.Usable = true
	all["node-1"] = usable
	l.apply(t, l.SetPeers("node-0", all))
	wantOps(t, l.ops, fmt.Sprintf("put peer 2 to 192.0.2.1 from 192.0.2.100 ring %x mtu 1500 usable\n", RingOf("node-1")))
	all["node-1"] = nodeAt("node-1", 7)
	l.apply(t, l.SetPeers("node-0", all))
	if l.model.Peers[2].Theirs != usable.Theirs || l.model.Peers[3].Theirs != all["node-1"].Theirs {
		t.Errorf("peers %v, want the new address as another one", l.model.Peers)
	}
}

// Whatever nodes and backends come and go, and whoever goes on with it: each backend has the
// home that its node is, what is as it was is not written, and no peer is named that is not there.
func TestHomesFollowNodesAndBackends(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		l := &lab{Planner: New(Sizes{})}
		nodes := map[string]Node{"node-0": nodeAt("node-0", 100)}
		var f lb.Frontend
		for range 25 {
			switch rng.IntN(4) {
			case 0:
				f = draw(t, rng)
				l.set(t, web, f)
			case 1:
				name := fmt.Sprint("node-", 1+rng.IntN(4))
				if delete(nodes, name); rng.IntN(3) > 0 {
					nodes[name] = nodeAt(name, byte(1+rng.IntN(6)))
				}
				l.apply(t, l.SetPeers("node-0", maps.Clone(nodes)))
			case 2:
				l.apply(t, l.Sweep())
			case 3:
				l.Planner = mustAdopt(t, l.model.Content())
				ops := l.SetPeers("node-0", maps.Clone(nodes))
				l.apply(t, ops)
				if f.Carried {
					l.set(t, web, f)
				}
			}
			checkHomes(t, l, f, nodes)
		}
		if ops := l.SetPeers("node-0", nodes); ops != nil {
			l.apply(t, ops)
			if again := l.SetPeers("node-0", nodes); again != nil {
				t.Fatalf("seed %d: the same nodes again are written:\n%s", seed, text(again))
			}
		}
	}
}

func checkHomes(t *testing.T, l *lab, f lb.Frontend, nodes map[string]Node) {
	t.Helper()
	for id, home := range l.model.Homes {
		if _, there := l.model.Peers[home]; home != HomeUnknown && !there {
			t.Fatalf("backend %d has the home %d, which is not there", id, home)
		}
	}
	if !l.peers.told || !f.Carried {
		return
	}
	got, want := map[lb.AddrPort]netip.Addr{}, map[lb.AddrPort]netip.Addr{}
	for id, b := range l.model.Backends {
		if _, member := f.Homes[b]; member {
			got[b] = l.model.Peers[l.model.Homes[id]].Theirs
			want[b] = nodes[nodeOf(b)].Theirs
		}
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Fatalf("homes (-want +got):\n%s", d)
	}
}

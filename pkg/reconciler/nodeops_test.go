package reconciler

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// nodeOps are the kinds of operations of the node. The last one is of a frontend that a Service has to leave to a NodePort.
var nodeOps = []string{"put service cidrs", "put address 192.0.2.", "delete address 192.0.2.", "put peer ", "put peer address", "delete peer address", "put home", "delete frontend 192.0.2."}

// carriedFrom is the first of the Services whose packets are carried.
const carriedFrom = 8

// claimant has a frontend that it leaves to the NodePort of another Service while the node has the address.
const claimant, claimed = "default/web-6", "192.0.2.7:30080/TCP"

// someNodeUpdate changes a Service, or what the node is told.
func (b *bench) someNodeUpdate(chance *rand.Rand) {
	addr := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, n}) }
	switch chance.IntN(4) {
	case 0:
		b.Update(lb.Update{ServiceCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96, byte(chance.IntN(4)), 0}), 24)}})
	case 1:
		node := map[netip.Addr]plan.AddressKind{addr(1): plan.NodeAddress}
		for n := range byte(8) {
			if chance.IntN(2) == 0 {
				node[addr(n)] = plan.NodeAddress
			}
		}
		b.SetNodeAddresses(node)
	case 2:
		all := map[string]plan.Node{"node-0": {Peer: plan.Peer{Ring: 1}}}
		for n := byte(1); n < 5; n++ {
			if chance.IntN(3) > 0 {
				peer := plan.Peer{Theirs: addr(100 + n), Ours: addr(1), MTU: 1500, Usable: chance.IntN(2) == 0}
				all[fmt.Sprint("node-", n)] = plan.Node{Peer: peer, Addrs: []netip.Addr{addr(100 + n), addr(110 + 3*n + byte(chance.IntN(3)))}}
			}
		}
		b.SetPeers("node-0", all)
	default:
		u := someUpdate(chance, 12)
		for name, s := range u.Services {
			switch {
			case s == nil:
			case name.String() == claimant:
				s.ExternalIPs = []netip.Addr{addr(7)}
				s.Ports[0].Port = 30080
			case name.String() == "default/web-7":
				s.Ports[0].NodePort = 30080
			case slices.ContainsFunc(s.ClusterIPs, func(a netip.Addr) bool { return a.As4()[3] >= carriedFrom }):
				s.Forwarding = lb.DSR
			}
		}
		for _, slice := range u.Slices {
			if slice != nil {
				for i := range slice.Endpoints {
					slice.Endpoints[i].Where = lb.Topology{Node: fmt.Sprint("node-", slice.Endpoints[i].Addr.As4()[3])}.Share()
				}
			}
		}
		b.Update(u)
	}
}

// nodeOf returns what maps hold of the node, whatever IDs they have.
func nodeOf(c plan.Content) (all []string) {
	for a, kind := range c.Addresses {
		all = append(all, fmt.Sprint("address ", a, kind))
	}
	for a, id := range c.PeerAddresses {
		all = append(all, fmt.Sprint("peer address ", a, c.Peers[id]))
	}
	for _, p := range c.Peers {
		all = append(all, fmt.Sprint("peer ", p))
	}
	for id, home := range c.Homes {
		if b, there := c.Backends[id]; there && home != plan.HomeUnknown {
			all = append(all, fmt.Sprint("home of ", b, c.Peers[home]))
		}
	}
	slices.Sort(all)
	return append(all, fmt.Sprint(c.ServiceCIDRs))
}

// checkPeers fails where anything names a peer that is not there.
func checkPeers(t *testing.T, step int, c plan.Content) {
	t.Helper()
	for id, home := range c.Homes {
		if _, there := c.Peers[home]; home != plan.HomeUnknown && !there {
			t.Fatalf("step %d: the home of backend %d is peer %d, which is not there", step, id, home)
		}
	}
	for a, id := range c.PeerAddresses {
		if _, there := c.Peers[id]; !there {
			t.Fatalf("step %d: %s is an address of peer %d, which is not there", step, a, id)
		}
	}
}

// TestOperationsOfTheNodeThatFailStopNoService fails operations of the node for good, while all changes: all Services are in
// force at once, as where nothing fails, but for those that such an operation is for. What is in force contradicts itself at
// no time. Once nothing fails any more, all is in force.
func TestOperationsOfTheNodeThatFailStopNoService(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			story := func(t *testing.T, dp *fake, begun func(), each func(b *bench), end func(b *bench)) {
				chance := rand.New(rand.NewPCG(seed, 1))
				inBubble(t, dp, func(t *testing.T, b *bench) {
					b.begin(lb.Update{})
					begun()
					for range 60 {
						b.someNodeUpdate(chance)
						pass(time.Duration(chance.IntN(3000)) * time.Millisecond)
						each(b)
					}
					end(b)
				})
			}
			var expected []plan.Content
			note := func(b *bench) { expected = append(expected, b.dp.content()) }
			story(t, &fake{}, func() {}, note, func(b *bench) { pass(longestRefusal + time.Minute); note(b) })

			chance := rand.New(rand.NewPCG(seed, 2))
			kinds := slices.DeleteFunc(slices.Clone(nodeOps), func(string) bool { return chance.IntN(3) > 0 })
			salt := chance.IntN(3)
			var fails atomic.Bool
			step := 0
			dp := &fake{fail: func(call string) error {
				sum := salt
				for _, c := range call {
					sum += int(c)
				}
				if fails.Load() && sum%3 > 0 && slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(call, kind) }) {
					return errors.New("cannot allocate memory")
				}
				return nil
			}}
			touched := func(frontend string, _ []string) bool {
				a := netip.MustParseAddrPort(strings.TrimSuffix(frontend, "/TCP")).Addr().As4()
				return strings.HasPrefix(frontend, "192.0.2.") || a[3] == 6 || slices.Contains(kinds, "put home") && a[3] >= carriedFrom
			}
			story(t, dp, func() { fails.Store(true) }, func(b *bench) {
				content := b.dp.content()
				if err := content.Check(); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				checkPeers(t, step, content)
				wanted, got := backendsOf(expected[step]), backendsOf(content)
				maps.DeleteFunc(wanted, touched)
				maps.DeleteFunc(got, touched)
				want(t, fmt.Sprintf("step %d, while %v fail: Services", step, kinds), wanted, got)
				step++
			}, func(b *bench) {
				fails.Store(false)
				pass(2*longestRefusal + time.Minute)
				want(t, "all Services once nothing fails", backendsOf(expected[step]), backendsOf(b.dp.content()))
				want(t, "the node once nothing fails", nodeOf(expected[step]), nodeOf(b.dp.content()))
			})
		})
	}
}

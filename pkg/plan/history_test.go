package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// carriedFrontend is one whose clients elsewhere are carried to backends, of which the Service
// has more still.
func carriedFrontend(tb testing.TB, backends, members []lb.AddrPort) lb.Frontend {
	f := balanced(tb, lb.Stable, backends)
	f.Carried, f.Members = true, members
	f.Homes = map[lb.AddrPort]string{}
	for _, b := range members {
		f.Homes[b] = nodeOf(b)
	}
	return f
}

// nodeOf is the node where a backend runs: one of five.
func nodeOf(b lb.AddrPort) string { return fmt.Sprint("node-", b.Addr.As4()[3]%5) }

// slotOwners is what a node knows of a slot.
type slotOwners struct {
	now lb.AddrPort
	was []lb.AddrPort // that the Service still has
}

func (o slotOwners) all() []lb.AddrPort { return append([]lb.AddrPort{o.now}, o.was...) }

// ownersAt returns what the maps say of the slot of a hash.
func ownersAt(tb testing.TB, c Content, f lb.Frontend, hash uint32) (o slotOwners) {
	tb.Helper()
	value := c.Frontends[f.AddrPort]
	t := value.Views[lb.External].Table
	index := uint32(uint64(hash) * uint64(t.Size) >> 32)
	o.now = c.Backends[c.Tables[t][index]]
	for _, id := range c.Owners[t.Offset+index] {
		if b := c.Backends[id]; id != 0 && slices.Contains(f.Members, b) {
			o.was = append(o.was, b)
		}
	}
	return o
}

// draw returns a random state of a Service that has eight backends at most: which of them take
// connections, and which it still has.
func draw(tb testing.TB, rng *rand.Rand) lb.Frontend {
	var backends, members []lb.AddrPort
	for _, b := range numbered(0, MaxOwners) {
		switch rng.IntN(4) {
		case 0, 1:
			backends, members = append(backends, b), append(members, b)
		case 2:
			members = append(members, b)
		}
	}
	if len(backends) == 0 {
		return draw(tb, rng)
	}
	f := carriedFrontend(tb, backends, members)
	f.TableSize = []uint32{0, 0, 0, 10007, 16381}[rng.IntN(5)]
	return f
}

// changed returns a Service of which one backend comes, drains or goes.
func changed(tb testing.TB, rng *rand.Rand, f lb.Frontend) lb.Frontend {
	b := numbered(0, MaxOwners)[rng.IntN(MaxOwners)]
	backends, members := f.Views[lb.External].Backends, f.Members
	with := func(list []lb.AddrPort) []lb.AddrPort {
		list = append(slices.Clone(list), b)
		slices.SortFunc(list, lb.AddrPort.Compare)
		return slices.Compact(list)
	}
	switch {
	case !slices.Contains(backends, b):
		backends, members = with(backends), with(members)
		if rng.IntN(2) == 0 && slices.Contains(f.Members, b) {
			backends, members = f.Views[lb.External].Backends, without(f.Members, []lb.AddrPort{b})
		}
	case len(backends) > 1:
		if backends = without(backends, []lb.AddrPort{b}); rng.IntN(2) == 0 {
			members = without(members, []lb.AddrPort{b})
		}
	}
	return carriedFrontend(tb, backends, members)
}

// MaxOwners is how many backends the owners of a slot are at most, with that which it names.
const MaxOwners = len(Owners{}) + 1

// followed is connections, by hash, and the backends that may have one: those that the slot
// named once, and the Service has had ever since.
type followed map[uint32]map[lb.AddrPort]bool

func (f followed) follow(tb testing.TB, c Content, frontend lb.Frontend) {
	for hash, may := range f {
		for b := range may {
			if !slices.Contains(frontend.Members, b) {
				delete(may, b)
			}
		}
		may[ownersAt(tb, c, frontend, hash).now] = true
	}
}

func newFollowed(rng *rand.Rand, n int) followed {
	f := followed{}
	for range n {
		f[rng.Uint32()] = map[lb.AddrPort]bool{}
	}
	return f
}

// Whatever comes, goes, drains, and however large the table is asked to be.
func TestWhoeverAConnectionMayBeWithIsAnOwnerOfItsSlot(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 5))
		l, connections := &lab{Planner: New(Sizes{})}, newFollowed(rng, 300)
		for step := range 12 {
			f := draw(t, rng)
			l.set(t, web, f)
			if rng.IntN(3) == 0 {
				l.apply(t, l.Sweep())
			}
			c := l.model.Content()
			if rng.IntN(4) == 0 {
				l.Planner = mustAdopt(t, c)
			}
			connections.follow(t, c, f)
			for hash, may := range connections {
				owners := ownersAt(t, c, f, hash)
				for b := range may {
					if !slices.Contains(owners.all(), b) {
						t.Fatalf("seed %d, step %d: %s may have a connection of hash %x, the owners of its slot are %v", seed, step, b, hash, owners)
					}
				}
			}
		}
	}
}

func mustAdopt(tb testing.TB, c Content) *Planner {
	tb.Helper()
	p, err := Adopt(c, Sizes{})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// Nodes learn of a change at different times. Wherever a packet comes in, and whoever knows of
// it, the home that has the connection is asked.
func TestTheRingFindsAConnectionWhileNodesLearnOfAChange(t *testing.T) {
	const nodes = 5
	passedOn := 0
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 6))
		l, connections := &lab{Planner: New(Sizes{})}, newFollowed(rng, 40)
		var before map[uint32]slotOwners
		f := draw(t, rng)
		for range 12 {
			f = changed(t, rng, f)
			l.set(t, web, f)
			c, after := l.model.Content(), map[uint32]slotOwners{}
			for hash := range connections {
				after[hash] = ownersAt(t, c, f, hash)
			}
			for know := range 1 << nodes {
				for hash, may := range connections {
					states := [nodes]slotOwners{}
					for n := range states {
						if states[n] = after[hash]; know>>n&1 == 0 && before != nil {
							states[n] = before[hash]
						}
					}
					for b := range may {
						if !slices.Contains(f.Members, b) {
							continue // its connections end
						}
						for ingress := range states {
							hops, found := walkRing(states[:], ingress, nodeOf(b))
							if !found {
								t.Fatalf("seed %d: a packet that comes in at node-%d is not brought to %s on %s; nodes know %v", seed, ingress, b, nodeOf(b), states)
							}
							if hops > 1 {
								passedOn++
							}
						}
					}
				}
			}
			connections.follow(t, c, f)
			before = after
		}
	}
	if passedOn < 1000 {
		t.Errorf("%d packets were passed on, too few to say anything", passedOn)
	}
}

// walkRing carries a packet as nodes do, until it is at a home; it returns how often it was
// carried.
func walkRing(nodes []slotOwners, ingress int, home string) (tried int, found bool) {
	at := fmt.Sprint("node-", ingress)
	if first := nodeOf(nodes[ingress].now); first != at {
		at, tried = first, 1
	}
	for at != home {
		var others []string
		for _, b := range nodes[int(at[len(at)-1]-'0')].all() {
			if n := nodeOf(b); n != at && !slices.Contains(others, n) {
				others = append(others, n)
			}
		}
		if tried > len(others)+1 || len(others) == 0 {
			return tried, false
		}
		at, tried = above(at, others), tried+1
	}
	return tried, true
}

// above returns the first of some nodes behind one in the ring.
func above(at string, others []string) string {
	return slices.MinFunc(others, func(a, b string) int {
		if RingOf(a)-RingOf(at) < RingOf(b)-RingOf(at) {
			return -1
		}
		return 1
	})
}

func TestTablesOfCarriedFrontendsAreAlikeOnAllNodes(t *testing.T) {
	old, young := &lab{Planner: New(Sizes{})}, &lab{Planner: New(Sizes{})}
	many, few := numbered(0, 1001), numbered(0, 12)
	old.set(t, web, carriedFrontend(t, many, many))
	for _, l := range []*lab{old, young} {
		l.set(t, web, carriedFrontend(t, few, few))
	}
	f := carriedFrontend(t, few, few)
	for hash := uint32(1); hash < 1<<31; hash *= 3 {
		if a, b := ownersAt(t, old.model.Content(), f, hash), ownersAt(t, young.model.Content(), f, hash); a.now != b.now {
			t.Fatalf("hash %x: %s on a node that is old, %s on one that is new", hash, a.now, b.now)
		}
	}
}

// Each Service has its own history, even with the same backends.
func TestACarriedTableIsOfOneServiceAlone(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	first := carriedFrontend(t, numbered(0, 3), numbered(0, 3))
	second := first
	second.AddrPort = mustAddrPort(t, "10.96.0.2:80/TCP")
	l.set(t, web, first)
	l.set(t, api, second)
	c := l.model.Content()
	if a, b := c.Frontends[first.AddrPort].Views, c.Frontends[second.AddrPort].Views; a[lb.External].Table == b[lb.External].Table || a[lb.Internal].Table != b[lb.Internal].Table {
		t.Errorf("views %v and %v, want external ones with a table each, and internal ones that share theirs", a, b)
	}
	if got := c.Frontends[first.AddrPort].Views[lb.External].Table.Size; got != 8089 {
		t.Errorf("the table has %d slots, want 8089", got)
	}
}

// With session affinity clients on this node are remembered, and those elsewhere a hash. Another
// agent finds it so.
func TestViewsOfACarriedFrontendMayChooseDifferently(t *testing.T) {
	l := &lab{Planner: New(Sizes{})}
	f := carriedFrontend(t, numbered(0, 3), numbered(0, 3))
	f.AffinityTimeout, f.ExternalAlgorithm = 10, lb.SH
	for range 2 {
		l.set(t, web, f)
		c := l.model.Content()
		got := c.Frontends[f.AddrPort]
		if in, out := got.Views[lb.Internal].Algorithm, got.Views[lb.External].Algorithm; in != lb.Stable || out != lb.SH || got.AffinityTimeout != 10 {
			t.Errorf("inside by %s, elsewhere by %s, affinity %d s, want stable, sh and 10 s", in, out, got.AffinityTimeout)
		}
		l.Planner = mustAdopt(t, c)
		if ops, err := l.Set(web, []lb.Frontend{f}); err != nil || len(ops) > 0 {
			t.Errorf("another agent changes %v, %v", ops, err)
		}
	}
}

// A change that finds no room leaves nothing behind, and can be made later.
func TestACarriedTableWithoutRoomIsForgotten(t *testing.T) {
	l := &lab{Planner: New(Sizes{Slots: 20000})}
	f := carriedFrontend(t, numbered(0, 3), numbered(0, 3))
	second := f
	second.AddrPort = mustAddrPort(t, "10.96.0.2:80/TCP")
	third := f
	third.AddrPort = mustAddrPort(t, "10.96.0.3:80/TCP")
	l.set(t, web, f)
	l.set(t, api, second)
	last := lb.ServiceName{Namespace: "default", Name: "zoo"}
	if _, err := l.Set(last, []lb.Frontend{third}); err == nil {
		t.Fatal("there was room for three tables of 8089 slots in 20000")
	}
	l.set(t, api)
	l.apply(t, l.Sweep())
	l.set(t, last, third)
}

package datapath

import (
	"math/bits"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

func TestTheFilterOfAddressesHasManyBitsForEach(t *testing.T) {
	for addresses, want := range map[uint32]uint32{1: 20, 1024: 20, 16384: 20, 16385: 21, 131072: 23, 1 << 24: 30, 1 << 31: 31} {
		if got := 32 - filterShift(filterChunks(addresses)); got != want {
			t.Errorf("for %d addresses a bit is told by %d bits of the hash, want %d", addresses, got, want)
		}
	}
}

// has is address_filter_has of bpf/lib/filter.h.
func (s *mapSet) has(a headgateIpAddr) bool { return s.hasHash(filterHash(a)) }

// hasHash says whether the bit of a hash is set.
func (s *mapSet) hasHash(hash uint32) bool {
	bit := hash >> filterShift(s.filter.len)
	return s.filter.at(bit / chunkBits).Word[bit/64%uint32(len(headgateFilterChunk{}.Word))]&(1<<(bit%64)) != 0
}

// set counts the bits of the filter that are set.
func (s *mapSet) set() (n int) {
	for i := range s.filter.len {
		for _, word := range s.filter.at(i).Word {
			n += bits.OnesCount64(word)
		}
	}
	return n
}

// filterOf makes maps with room for so many addresses, and takes along what there is in others.
func filterOf(t *testing.T, o *object, from *mapSet, addresses uint32) *mapSet {
	t.Helper()
	made, err := o.makeMaps(plan.Sizes{Frontends: 1024, Slots: 16, Backends: 16, Services: 16, Addresses: addresses}, from)
	if err != nil {
		t.Fatal(err)
	}
	s, err := made.fill()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newFilterObject returns the object that such maps are of.
func newFilterObject(t *testing.T) *object {
	t.Helper()
	smallMaps(t) // which need privileges
	o, err := newObject(Config{SocketEntries: 1024, Affinities: 1, Flows: 1024, SNATPorts: DefaultSNATPorts})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func applyAll(t *testing.T, s *mapSet, ops ...plan.Op) {
	t.Helper()
	for _, op := range ops {
		if err := s.apply(op); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFilterKnowsWhereFrontendsAnswer(t *testing.T) {
	o := newFilterObject(t)
	s := filterOf(t, o, nil, 1024)
	port := func(a netip.Addr, port uint16) lb.AddrPort { return lb.AddrPort{Addr: a, Port: port, Protocol: lb.UDP} }
	early, late, balancer := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("203.0.113.10")
	applyAll(t, s,
		plan.PutAddress{Addr: early, Kind: plan.NodeAddress},
		plan.PutFrontend{Key: port(netip.IPv6Unspecified(), 30080), Value: plan.Frontend{Service: 1, Kind: lb.NodePort}},
		plan.PutAddress{Addr: late, Kind: plan.NodeAddress},
		plan.PutFrontend{Key: port(balancer, 53), Value: plan.Frontend{Service: 1, Kind: lb.LoadBalancerIP}},
		plan.PutFrontend{Key: row(1), Value: plan.Frontend{Service: 1}})
	for _, m := range []*mapSet{s, filterOf(t, o, s, 1<<17)} {
		for _, answers := range []lb.AddrPort{port(early, 30080), port(late, 30080), port(balancer, 53)} {
			if !m.hasHash(answerHash(encodeAddr(answers.Addr), answers.Port)) {
				t.Errorf("of %d elements none says that a frontend answers at %s", m.filter.len, answers)
			}
		}
		if m.hasHash(answerHash(encodeAddr(early), 60000)) || m.hasHash(answerHash(encodeAddr(row(1).Addr), row(1).Port)) {
			t.Errorf("of %d elements some say that a frontend answers where none does", m.filter.len)
		}
	}
}

func TestAFilterThatGrowsKnowsWhatThereIsAndNothingElse(t *testing.T) {
	o := newFilterObject(t)
	s := filterOf(t, o, nil, 1024)
	node, gone := netip.MustParseAddr("2001:db8::1"), row(2000)
	applyAll(t, s, plan.PutAddress{Addr: node, Kind: plan.NodeAddress}, plan.PutAddress{Addr: gone.Addr, Kind: plan.ServiceAddress}, plan.DeleteAddress{Addr: gone.Addr})
	for n := range 1000 {
		applyAll(t, s, plan.PutFrontend{Key: row(n), Value: plan.Frontend{Service: 1}})
	}
	larger := filterOf(t, o, s, 1<<17)
	if larger.filter.len <= s.filter.len {
		t.Fatalf("the filter has %d elements, and had %d", larger.filter.len, s.filter.len)
	}
	for n := range 1000 {
		if !larger.has(encodeAddr(row(n).Addr)) {
			t.Fatalf("frontend %s is not known", row(n))
		}
	}
	if !larger.has(encodeAddr(node)) || larger.has(encodeAddr(gone.Addr)) || larger.set() > 1001 {
		t.Errorf("the node is known: %v, an address that is gone: %v, bits set: %d", larger.has(encodeAddr(node)), larger.has(encodeAddr(gone.Addr)), larger.set())
	}
}

func TestMapsThatCannotBeFilledAreClosed(t *testing.T) {
	smallMaps(t) // which need privileges
	o, err := newObject(Config{SocketEntries: 1024, Affinities: 1, Flows: 1024, SNATPorts: DefaultSNATPorts})
	if err != nil {
		t.Fatal(err)
	}
	sizes := plan.Sizes{Frontends: 1024, Slots: 16, Backends: 16, Services: 16, Addresses: 1024}
	from, err := o.makeMaps(sizes, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(from.Close)
	sizes.Backends = 32
	next, err := o.makeMaps(sizes, from.mapSet)
	if err != nil {
		t.Fatal(err)
	}
	from.byName["backends"].Close()
	if s, err := next.fill(); err == nil || s != nil {
		t.Errorf("filled from a map that is closed: %v, %v", s, err)
	}
	for name, m := range next.byName {
		if m.FD() >= 0 {
			t.Errorf("map %s is open still", name)
		}
	}
}

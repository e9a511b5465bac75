package packets

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// newRedirectingRig loads the datapath with packets to other nodes redirected, where no driver
// repeats: so TC does. Packets leave as with newRepeatingRig.
func newRedirectingRig(t *testing.T) (*rig, []byte) {
	t.Helper()
	stayOnOneCPU(t)
	r := newRigOf(t, func(c *datapath.Config) { c.Redirect = true })
	return r, r.routeTo(t, v4.remote, v6.remote, v4.client, v6.client)
}

// repeatedHere gives a frame to TC, and returns what that sends if it repeats; nil if it decides.
func (r *rig) repeatedHere(t *testing.T, frame []byte) []byte {
	t.Helper()
	before := r.counters(t)["flow_repeated"]
	made := r.atTC(t, frame)
	if r.counters(t)["flow_repeated"] == before {
		return nil
	}
	return made
}

// repeatedHereAfter has TC decide of one packet of a flow, and then gives it another one. As
// with repeatedAfter an entry may end in between.
func (r *rig) repeatedHereAfter(t *testing.T, plain, frame []byte) []byte {
	t.Helper()
	for range 10 {
		r.atTC(t, plain)
		if got := r.repeatedHere(t, frame); got != nil {
			return got
		}
	}
	return nil
}

// decided returns what TC sends if it has to decide: nothing is repeated that was done before.
func (r *rig) decided(t *testing.T, frame []byte) []byte {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.root, "maps", "about"), nil)
	must(t, err)
	defer m.Close()
	about, err := m.LookupBytes(uint32(0))
	must(t, err)
	about[fieldOffset(t, m, "about", "epoch")]++
	must(t, m.Put(uint32(0), about))
	before := r.counters(t)["flow_repeated"]
	made := r.atTC(t, frame)
	if r.counters(t)["flow_repeated"] != before {
		t.Fatal("what was done before is repeated")
	}
	return made
}

// TestTCRepeatsWhatItDid tells of packets within flows through another node, decided and
// repeated: what leaves is the same to the last byte.
func TestTCRepeatsWhatItDid(t *testing.T) {
	r, macs := newRedirectingRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) { c.isRepeatedHere(t, macs) }}, cast{b, r, protocol})
			})
		}
	}
}

func (c cast) isRepeatedHere(t *testing.T, macs []byte) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
	way := c.established(t, 40000)
	for _, s := range []struct {
		name    string
		change  func(p *packet)
		decided bool
	}{
		{"as it is", func(*packet) {}, false},
		{"nothing in it", func(p *packet) { p.payload = nil }, false},
		{"an odd number of bytes", func(p *packet) { p.payload = []byte("odd") }, false},
		{"as long as the route allows", func(p *packet) { p.payload = make([]byte, c.room()) }, false},
		{"a byte longer", func(p *packet) { p.payload = make([]byte, c.room()+1) }, true},
		{"two hops left", func(p *packet) { p.ttl = 2 }, false},
		{"one hop left", func(p *packet) { p.ttl = 1 }, true},
		{"no checksum", func(p *packet) { p.noChecksum = true }, false},
		{"options of IPv4", func(p *packet) { p.options = []byte{1, 1, 1, 0} }, c.client.Is4()},
		{"a fragment", func(p *packet) { p.payload = make([]byte, 64); p.fragment = &fragment{id: 7, size: 40} }, true},
		{"SYN and ACK", func(p *packet) { p.flags = "SA" }, c.protocol == lb.TCP},
	} {
		for direction, p := range map[string]packet{"ask": way.ask, "answer": way.answer} {
			plain := p.frame(t)
			s.change(&p)
			frame := p.frame(t)
			got := c.repeatedHereAfter(t, plain, frame)
			if (got == nil) != s.decided {
				t.Errorf("%s, %s: repeated as %s", direction, s.name, dump(got))
			}
			if got == nil {
				continue
			}
			if want := c.decided(t, frame); !bytes.Equal(got, want) || !bytes.Equal(got[:12], macs) {
				t.Errorf("%s, %s:\nrepeated %s\ndecided  %s", direction, s.name, dump(got), dump(want))
			}
			c.keepsTheSum(t, plain, frame)
		}
	}
}

// keepsTheSum gives TC a packet of which the device has made a sum: the kernel compares that
// with the packet afterwards.
func (c cast) keepsTheSum(t *testing.T, plain, frame []byte) {
	t.Helper()
	if !c.sums {
		return
	}
	for range 10 {
		c.atTC(t, plain)
		before := c.counters(t)["flow_repeated"]
		_, err := c.tryAs(in, uplink, frame, sumUp)
		must(t, err)
		if c.counters(t)["flow_repeated"] != before {
			return
		}
	}
	t.Error("no packet with a sum of its device is repeated")
}

// TestWhatEndsARepetitionAtTC holds what TC decides anew.
func TestWhatEndsARepetitionAtTC(t *testing.T) {
	r, _ := newRedirectingRig(t)
	for _, end := range []struct {
		what    string
		happens func(t *testing.T, c cast, way route)
	}{
		{"the backend leaves", func(t *testing.T, c cast, _ route) {
			c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote2, 8080)))
		}},
		{"a second passes", func(*testing.T, cast, route) { time.Sleep(1400 * time.Millisecond) }},
		{"a FIN", func(t *testing.T, c cast, way route) { c.atTC(t, way.ask.with("FA").frame(t)) }},
		{"a reset", func(t *testing.T, c cast, way route) { c.atTC(t, way.ask.with("R").frame(t)) }},
	} {
		t.Run(end.what, func(t *testing.T) {
			r.tell(t, story{tell: func(t *testing.T, c cast) {
				c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
				way := c.established(t, 40000)
				frame := way.ask.frame(t)
				if c.repeatedHereAfter(t, frame, frame) == nil {
					t.Fatal("nothing is repeated")
				}
				end.happens(t, c, way)
				before := c.counters(t)["flow_repeated"]
				c.run(t, in, uplink, frame)
				if c.counters(t)["flow_repeated"] != before {
					t.Error("it is repeated all the same")
				}
			}}, cast{v4, r, lb.TCP})
		})
	}
}

// TestWhatDidNotLeaveLetsNothingElsePass has a packet that was repeated get lost before the device by
// which it was to leave: others are decided there as ever.
func TestWhatDidNotLeaveLetsNothingElsePass(t *testing.T) {
	r, _ := newRedirectingRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
		way := c.established(t, 40000)
		plain := way.ask.frame(t)
		for range 10 {
			c.atTC(t, plain)
			before := c.counters(t)["flow_repeated"]
			c.run(t, in, uplink, plain) // and it gets lost
			if c.counters(t)["flow_repeated"] == before {
				continue
			}
			toBackend := way.ask.to(way.ask.src, at(c.remote, 8080)) // by the stack
			if verdict, made := c.run(t, out, uplink, toBackend.frame(t)); verdict != pass || bytes.Equal(made, toBackend.frame(t)) {
				t.Errorf("it leaves with the address of the client: verdict %d", verdict)
			}
			c.run(t, in, uplink, plain) // and gets lost again, before a flow begins
			ask := c.packet(at(c.client, 40001), at(c.vip, 80), 10)
			if src, _, _ := ends(c.atTC(t, ask.frame(t))); src.Addr() == c.client {
				t.Error("a new flow leaves with the address of the client")
			}
			return
		}
		t.Error("nothing is repeated")
	}}, cast{v4, r, lb.TCP})
}

// TestRandomPacketsAreRepeatedAsDecided gives random packets to TC, twice: what is repeated leaves
// as if it had been decided. HEADGATE_REPEATED says how many.
func TestRandomPacketsAreRepeatedAsDecided(t *testing.T) {
	r, _ := newRedirectingRig(t)
	seed := number(t, "HEADGATE_SEED", 1)
	random := newChance(seed)
	repeated, decided := 0, 0
	var ways []heads
	for i := range number(t, "HEADGATE_REPEATED", 400) {
		if i%200 == 0 {
			ways = r.newWays(t, random, 4)
		}
		way := ways[random.IntN(len(ways))]
		r.atTC(t, way.ask.bytes)
		r.atTC(t, way.answer.bytes)
		frame := random.anyFrameOf(way)
		got := r.repeatedHere(t, frame)
		if got == nil {
			decided++
			continue
		}
		if repeated++; !bytes.Equal(got, r.decided(t, frame)) {
			t.Fatalf("seed %d, packet %d: %s is repeated as\n%s", seed, i, dump(frame), dump(got))
		}
	}
	t.Logf("%d repeated, %d decided", repeated, decided)
	if repeated == 0 || decided == 0 {
		t.Error("nothing is tested")
	}
}

package packets

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// carried is what packets were: how many, and their payload in bytes.
type carried struct{ packets, bytes uint64 }

func (c *carried) add(bytes int) {
	c.packets++
	c.bytes += uint64(bytes)
}

// payload is how many bytes of a packet of a flow are behind its transport header.
func (v view) payload(frame []byte) int {
	header := minimum[v.protocol]
	switch {
	case v.later:
		header = 0
	case v.protocol == lb.TCP:
		header = int(frame[v.l4+12] >> 4 * 4)
	}
	return max(0, v.end-v.l4-header)
}

// carriedBy returns what the words of all ways say together: they only go up.
func (r *rig) carriedBy(tb testing.TB) carried {
	tb.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.root, "maps", "flow_traffic"), nil)
	must(tb, err)
	defer m.Close()
	memory, err := m.Memory()
	must(tb, err)
	all := make([]byte, memory.Size())
	_, err = memory.ReadAt(all, 0)
	must(tb, err)
	var sum uint64
	for set := range m.MaxEntries() {
		for way := range uint32(flowWays + 1) {
			sum += binary.NativeEndian.Uint64(all[set*m.ValueSize()+8*way:])
		}
	}
	return carried{sum >> 36, sum & (1<<36 - 1)}
}

// since returns what has come after an earlier sum.
func (c carried) since(before carried) carried {
	return carried{c.packets - before.packets, c.bytes - before.bytes}
}

// wantTraffic compares what all Service ports and all backends have after what came is taken.
func (r *rig) wantTraffic(t *testing.T, what string, to, from carried) {
	t.Helper()
	must(t, r.dp.TakeTraffic())
	services, backends := r.traffic(t)
	want := datapath.Traffic{PacketsTo: to.packets, BytesTo: to.bytes, PacketsFrom: from.packets, BytesFrom: from.bytes}
	if services != want || backends != want {
		t.Errorf("%s: Services have %+v, backends %+v, want %+v", what, services, backends, want)
	}
}

func TestEveryPacketOfAFlowCountsOnce(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			for name, frontend := range map[string]netip.Addr{"LoadBalancer": b.vip, "NodePort": b.node} {
				t.Run(fmt.Sprint(b.family(), " ", protocol, " ", name), func(t *testing.T) {
					r.tell(t, story{tell: func(t *testing.T, c cast) { c.countsPackets(t, frontend) }}, cast{b, r, protocol})
				})
			}
		}
	}
}

// countsPackets sends packets to a backend on another node and back, through both hooks each.
func (c cast) countsPackets(t *testing.T, address netip.Addr) {
	frontend, backend := at(address, 30080), at(c.remote, 8080)
	if address == c.node {
		c.set(t, "web", c.frontend(lb.NodePort, at(unspecified(c.client), 30080), backend))
	} else {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, frontend, backend))
	}
	first := c.packet(at(c.client, 40000), frontend, 7)
	sent := first.to(first.src, backend)
	c.becomes(t, "the first packet", in, uplink, first, sent)
	leaves := c.comesOut(t, "on its way out", out, uplink, sent)
	c.wantTraffic(t, "the first packet", carried{1, 7}, carried{})
	c.becomes(t, "the answer", in, uplink, leaves.answer("SA", []byte("hello")), sent.answer("SA", []byte("hello")))
	c.becomes(t, "the answer on its way out", out, uplink, sent.answer("SA", []byte("hello")), first.answer("SA", []byte("hello")))
	c.wantTraffic(t, "the answer", carried{1, 7}, carried{1, 5})
	c.wantTraffic(t, "nothing since", carried{1, 7}, carried{1, 5})
	for n := range 10 {
		p := c.packet(first.src, frontend, n).with("A")
		if c.client.Is4() && n%2 == 1 {
			p.options = []byte{1, 1, 1, 0}
		}
		c.becomes(t, "what follows", in, uplink, p, p.to(first.src, backend))
	}
	c.becomes(t, "of nobody", in, uplink, c.packet(first.src, at(c.other, 80), 9), c.packet(first.src, at(c.other, 80), 9))
	c.wantTraffic(t, "ten more", carried{11, 7 + 45}, carried{1, 5})
}

func TestWhatWasNotTakenOutlivesAnAgent(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
		p := c.packet(at(c.client, 40000), at(c.vip, 80), 7)
		c.becomes(t, "a packet", in, uplink, p, p.to(p.src, at(c.local, 8080)))
		r.dp.Close()
		dp, err := datapath.Open(r.cfg)
		must(t, err)
		t.Cleanup(dp.Close)
		must(t, dp.Attach())
		r.dp = dp
		c.wantTraffic(t, "before a restart", carried{1, 7}, carried{})
		c.becomes(t, "another packet", in, uplink, p.with("A"), p.with("A").to(p.src, at(c.local, 8080)))
		must(t, dp.Reserve(plan.Sizes{Backends: 10_000}))
		c.wantTraffic(t, "before maps grew", carried{2, 14}, carried{})
	}}, cast{v4, r, lb.TCP})
}

// TestRepeatedPacketsCount compares what is counted of packets that TC, or a driver, repeats, and of
// those of which TC decides.
func TestRepeatedPacketsCount(t *testing.T) {
	t.Run("at TC", func(t *testing.T) {
		r, _ := newRedirectingRig(t)
		r.countsRepeated(t, r.repeatedHere)
	})
	t.Run("at the driver", func(t *testing.T) {
		r, _ := newRepeatingRig(t)
		r.countsRepeated(t, func(t *testing.T, frame []byte) []byte { return r.repeated(t, frame) })
	})
}

func (r *rig) countsRepeated(t *testing.T, repeat func(t *testing.T, frame []byte) []byte) {
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) { c.countsRepeatedOf(t, repeat) }}, cast{b, r, protocol})
			})
		}
	}
}

func (c cast) countsRepeatedOf(t *testing.T, repeat func(t *testing.T, frame []byte) []byte) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
	begun := c.carriedBy(t)
	way := c.established(t, 40000)
	sums := map[string]carried{"ask": {2, 20}, "answer": {2, 20}}
	if got, want := c.carriedBy(t).since(begun), (carried{4, 40}); got != want {
		t.Fatalf("a flow that is established has carried %+v, want %+v", got, want)
	}
	for direction, p := range map[string]packet{"ask": way.ask, "answer": way.answer} {
		sum, repeated := sums[direction], 0
		for n := range 20 {
			p.payload = make([]byte, n)
			frame, before := p.frame(t), c.carriedBy(t)
			if repeat(t, frame) != nil {
				repeated++
			} else if got := c.carriedBy(t).since(before); got == (carried{}) { // the driver has left it to TC
				c.atTC(t, frame)
			}
			if got, want := c.carriedBy(t).since(before), (carried{1, uint64(n)}); got != want {
				t.Errorf("%s of %d bytes: counted %+v, want %+v", direction, n, got, want)
			}
			sum.add(n)
		}
		if sums[direction] = sum; repeated < 15 {
			t.Errorf("%s: %d of 20 packets were repeated", direction, repeated)
		}
	}
	c.wantTraffic(t, "a flow that is repeated", sums["ask"], sums["answer"])
}

// Anybody can send a fragment whose IP header says that it ends before its payload begins.
func TestAFragmentThatEndsTooEarlyHasNoPayload(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: endsTooEarly}, cast{b, r, protocol})
			})
		}
	}
}

func endsTooEarly(t *testing.T, c cast) {
	backend := at(c.local, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 100)
	p.fragment = &fragment{id: 7, size: 48}
	c.becomes(t, "the first fragment", in, uplink, p, p.to(p.src, backend))
	length := 4 // where IPv6 has the length of what is behind its header
	p.fragment = &fragment{id: 7, offset: 48}
	if p.is4() {
		length, p.options = 2, []byte{1, 1, 1, 0}
	}
	frame := p.frame(t)
	binary.BigEndian.PutUint16(frame[ethernetLen+length:], 1)
	before := c.carriedBy(t)
	c.run(t, in, uplink, frame)
	if got, want := c.carriedBy(t).since(before), (carried{1, 0}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// Without --traffic nothing is counted, and there is no room for it.
func TestNoPacketCountsWithoutTraffic(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Traffic = false })
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
		p := c.packet(at(c.client, 40000), at(c.vip, 80), 9)
		c.becomes(t, "a packet", in, uplink, p, p.to(p.src, at(c.local, 8080)))
		if got := c.carriedBy(t); got != (carried{}) {
			t.Errorf("counted %+v", got)
		}
		c.wantTraffic(t, "without", carried{}, carried{})
	}}, cast{v4, r, lb.UDP})
}

// A way that is given to another flow begins anew: what nobody took before is not the next one's.
func TestAWayCountsForTheFlowThatHasIt(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = flowWays })
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		vip := at(c.vip, 80)
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.local, 8080)))
		for client := range uint16(20) {
			c.run(t, in, uplink, c.packet(at(c.client, 40000+client), vip, 7).frame(t))
		}
		var there carried
		for _, w := range c.table.all(t) {
			if w.key.dst == vip {
				there.add(7)
			}
		}
		if there.packets == 0 {
			t.Fatal("no flow is there")
		}
		c.wantTraffic(t, "flows that made room for others", there, carried{})
	}}, cast{v4, r, lb.UDP})
}

// TestAFlowThatMovesTakesItsCountAlong fills a table up to where most new flows have others move.
func TestAFlowThatMovesTakesItsCountAlong(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = filledSets * flowWays })
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		vip, backend := at(c.vip, 80), at(c.local, 8080)
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
		var to, from carried
		for client := range uint16(filledSets * flowWays * 5 / 6 / 2) {
			ask := c.packet(at(c.client, 1024+client), vip, 3)
			answer := ask.answer("SA", []byte("hello"))
			c.becomes(t, "a first packet", in, uplink, ask, ask.to(ask.src, backend))
			c.becomes(t, "its answer", out, uplink, ask.to(ask.src, backend).answer("SA", []byte("hello")), answer)
			c.becomes(t, "what follows", in, uplink, ask.with("A"), ask.with("A").to(ask.src, backend))
			to.add(3)
			to.add(3)
			from.add(5)
		}
		c.wantTraffic(t, "flows, many of which have moved", to, from)
	}}, cast{v4, r, lb.TCP})
}

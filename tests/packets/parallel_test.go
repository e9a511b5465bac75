package packets

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// parallelFlow is a flow whose packets come to any CPU.
type parallelFlow struct {
	client, vip netip.AddrPort
	began       sync.Once
	backend     netip.AddrPort // that the first packet got
	err         error
}

// parallel is flows whose packets come to two CPUs at the same time.
type parallel struct {
	cast
	at       netip.AddrPort
	backends []netip.AddrPort // that the Service always has
	flows    []*parallelFlow
}

// feed sends packets of random flows: the first, later ones and answers. A flow keeps its
// backend, and what comes out is as it should to the last byte.
func (p *parallel) feed(tb testing.TB, seed, packets uint64) error {
	r := rand.New(rand.NewPCG(seed, seed))
	for i := range packets {
		f := p.flows[r.IntN(len(p.flows))]
		if f.began.Do(func() { f.err = p.begin(tb, f) }); f.err != nil {
			return f.err
		}
		h, q := in, p.packet(f.client, f.vip, r.IntN(40)).with("A")
		want := q.to(f.client, f.backend)
		if r.IntN(2) == 0 {
			h, q = out, want.answer("A", q.payload)
			want = q.to(f.vip, f.client)
		}
		var err error
		switch r.IntN(8) {
		case 0:
			err = p.inFragments(tb, h, q, want, uint32(i<<1|seed&1)) // no ID is another CPU's
		case 1:
			err = p.errorAbout(tb, h, q, want)
		default:
			err = p.wants(tb, h, q, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wants says how what a program makes of a packet differs from another.
func (p *parallel) wants(tb testing.TB, h hook, q, want packet) error {
	return p.wantsFrame(h, q.frame(tb), want.frame(tb))
}

func (p *parallel) wantsFrame(h hook, given, want []byte) error {
	got, err := p.try(h, uplink, given)
	if err != nil {
		return err
	}
	if got.verdict != pass || !bytes.Equal(got.frame, want) {
		return fmt.Errorf("%s: verdict %d, given %s\ngot  %s\nwant %s", h, got.verdict, dump(given), dump(got.frame), dump(want))
	}
	return nil
}

// inFragments sends a longer packet in three fragments, of which the last two come in any
// order.
func (p *parallel) inFragments(tb testing.TB, h hook, q, want packet, id uint32) error {
	q.payload = bytes.Repeat([]byte("z"), 1300)
	want.payload = q.payload
	parts, wanted := cut(q, id, 504, 3), cut(want, id, 504, 3)
	for _, i := range [][]int{{0, 1, 2}, {0, 2, 1}}[id>>1%2] {
		if err := p.wants(tb, h, parts[i], wanted[i]); err != nil {
			return fmt.Errorf("fragment %d: %w", i, err)
		}
	}
	return nil
}

// errorAbout sends the error that comes back about a packet which has become another.
func (p *parallel) errorAbout(tb testing.TB, h hook, became, was packet) error {
	// An error goes the other way than the packet it is about.
	given, wanted := p.portUnreachable(tb, p.router, was), p.portUnreachable(tb, p.router, became)
	h = otherHook[h]
	if h == out { // nobody outside knows the router
		wanted.from = became.dst.Addr()
	}
	return p.wantsFrame(h, given.frame(tb), wanted.frame(tb))
}

// begin sends the first packet of a flow, to a backend that the Service has.
func (p *parallel) begin(tb testing.TB, f *parallelFlow) error {
	q := p.packet(f.client, f.vip, 9)
	got, err := p.try(in, uplink, q.frame(tb))
	if err != nil {
		return err
	}
	src, dst, ok := ends(got.frame)
	if !ok || got.verdict != pass || src != f.client || !slices.Contains(p.backends, dst) || !bytes.Equal(got.frame, q.to(src, dst).frame(tb)) {
		return fmt.Errorf("%s: verdict %d, now %s", describe(q), got.verdict, dump(got.frame))
	}
	f.backend = dst
	for _, answer := range []string{"SA", "A"} {
		a := q.to(src, dst).answer(answer, nil)
		if err := p.wants(tb, out, a, a.to(f.vip, f.client)); err != nil {
			return err
		}
		if err := p.wants(tb, in, q.with("A"), q.with("A").to(src, dst)); err != nil {
			return err
		}
	}
	return nil
}

// changesUntil changes what new flows get, and other Services, until all packets are sent.
// What flows have stays known.
func (p *parallel) changesUntil(t *testing.T, sent <-chan error) {
	t.Helper()
	for i := 0; ; i++ {
		select {
		case err := <-sent:
			must(t, err)
			return
		case <-time.After(5 * time.Millisecond):
		}
		f := p.frontend(lb.LoadBalancerIP, p.at, p.backends...)
		f.Views[lb.External].Backends = f.Members[:1+i%len(f.Members)]
		p.set(t, "web", f)
		p.set(t, "other", p.frontend(lb.LoadBalancerIP, at(p.vip2, uint16(1+i%7)), p.backends[:i%2]...))
		p.apply(t, p.planner.Sweep())
	}
}

// confirm has datagrams confirm their flows, which takes time; TCP has done so.
func (p *parallel) confirm(t *testing.T) {
	t.Helper()
	if p.protocol == lb.TCP {
		return
	}
	p.age(t, 3)
	for _, f := range p.flows {
		if f.backend.IsValid() {
			q := p.packet(f.client, f.vip, 0)
			a := q.to(f.client, f.backend).answer("", nil)
			must(t, p.wants(t, out, a, a.to(f.vip, f.client)))
			must(t, p.wants(t, in, q, q.to(f.client, f.backend)))
		}
	}
}

// check checks what is left: each flow has both its directions, the counters add up, and as much is
// in flight as there are flows.
func (p *parallel) check(t *testing.T) {
	t.Helper()
	began, there := 0, p.table.keys(t)
	for _, f := range p.flows {
		if !f.backend.IsValid() {
			continue
		}
		began++
		for _, k := range []key{{in, f.client, f.vip, p.protocol}, {out, f.backend, f.client, p.protocol}} {
			if !there[k] {
				t.Errorf("there is no entry %s %s → %s", k.hook, k.src, k.dst)
			}
		}
	}
	if n := p.rig.flows(t); n != 2*began {
		t.Errorf("%d entries for %d flows", n, began)
	}
	p.confirm(t)
	p.wantInFlight(t, "flows are confirmed", uint32(began))
	if made := p.counters(t)["flow_made"] - p.counted["flow_made"]; made != uint64(began) {
		t.Errorf("%d flows were made, %d began", made, began)
	}
}

// TestRandomPacketsOnTwoCPUs has packets of the same flows on two CPUs at the same time,
// while Services change. $HEADGATE_PACKETS says how many.
func TestRandomPacketsOnTwoCPUs(t *testing.T) {
	r := newRig(t)
	seed := number(t, "HEADGATE_SEED", 1)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) {
					p := &parallel{cast: c, at: at(b.vip, 80), backends: []netip.AddrPort{at(b.local, 8080), at(b.local, 8081), at(b.local2, 8080)}}
					p.set(t, "web", p.frontend(lb.LoadBalancerIP, p.at, p.backends...))
					for i := range uint16(2000) {
						p.flows = append(p.flows, &parallelFlow{client: at(b.client, 1024+i), vip: p.at})
					}
					packets := number(t, "HEADGATE_PACKETS", 100_000) / 8
					p.changesUntil(t, onCPUs(t,
						func() error { return p.feed(t, seed, packets) },
						func() error { return p.feed(t, seed+1, packets) }))
					p.check(t)
				}}, cast{b, r, protocol})
			})
		}
	}
}

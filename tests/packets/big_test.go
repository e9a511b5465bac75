package packets

import (
	"encoding/binary"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// numbered is a frame of TCP with other numbers.
func numbered(t *testing.T, p packet, seq, ack uint32) []byte {
	t.Helper()
	frame := p.frame(t)
	v, _ := parse(frame)
	binary.BigEndian.PutUint32(frame[v.l4+4:], seq)
	binary.BigEndian.PutUint32(frame[v.l4+8:], ack)
	return frame
}

// exchange is a connection whose sides send and acknowledge.
type exchange struct {
	cast
	toBackend, toClient packet // as they come to the node
	client, server      uint32 // numbers
}

func (c cast) exchange(t *testing.T, client uint16) *exchange {
	t.Helper()
	p := c.establish(t, at(c.client, client), at(c.vip, 80), at(c.local, 8080))
	return &exchange{c, p.with("A"), p.to(p.src, at(c.local, 8080)).answer("A", nil), firstSeq, firstSeq}
}

// says gives a packet of each side to the programs, with the same flags.
func (e *exchange) says(t *testing.T, flags string) {
	t.Helper()
	e.run(t, out, uplink, numbered(t, e.toClient.with(flags), e.server, e.client))
	e.run(t, in, uplink, numbered(t, e.toBackend.with(flags), e.client, e.server))
}

// hasEnded says whether the flow makes room as one that both sides have ended.
func (e *exchange) hasEnded(t *testing.T) bool {
	t.Helper()
	w, there := e.table.find(t, key{in, e.toBackend.src, e.toBackend.dst, lb.TCP})
	if !there {
		t.Fatal("there is no flow")
	}
	return w.state&flagHalfOpen != 0
}

// TestLongConnectionsEnd has connections that carry much be closed by both sides, while their backend drains: the next one of
// the client's port gets another.
func TestLongConnectionsEnd(t *testing.T) {
	const segment = 1 << 18
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for name, sends := range map[string]func(*exchange){
			"the server sends": func(e *exchange) { e.server += segment },
			"the client sends": func(e *exchange) { e.client += segment },
			"both send":        func(e *exchange) { e.server, e.client = e.server+segment, e.client+segment/3 },
		} {
			t.Run(b.family()+" "+name, func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) { endAfter(t, c, sends) }}, cast{b, r, lb.TCP})
			})
		}
	}
}

func endAfter(t *testing.T, c cast, sends func(*exchange)) {
	vip, old, other := at(c.vip, 80), at(c.local, 8080), at(c.local, 8081)
	for i, segments := range []int{1, 1000} {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, old))
		e := c.exchange(t, 41000+uint16(i))
		for range segments {
			sends(e)
			e.says(t, "A")
		}
		e.says(t, "FA")
		if !e.hasEnded(t) {
			t.Errorf("after %d segments of 256 KiB two FINs do not end the connection", segments)
		}
		f := c.frontend(lb.LoadBalancerIP, vip, old, other)
		f.Views[lb.Internal].Backends, f.Views[lb.External].Backends = f.Members[1:], f.Members[1:]
		c.set(t, "web", f)
		c.age(t, 300)
		p := e.toBackend.with("S")
		c.becomes(t, "the port comes again", in, uplink, p, p.to(p.src, other))
	}
}

// TestNoSweepLeadsAstray has a stranger who knows the client's numbers send data in the name of the server, with one number
// after the other, and then a reset with the last of them.
func TestNoSweepLeadsAstray(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		r.tell(t, story{tell: func(t *testing.T, c cast) {
			c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
			e := c.exchange(t, 41000)
			e.server += 1 << 31
			for range 1 << 10 {
				e.server += 1 << 22 // all of them at last
				e.run(t, out, uplink, numbered(t, e.toClient, e.server, e.client))
			}
			e.run(t, out, uplink, numbered(t, e.toClient.with("RA"), e.server, e.client))
			if e.hasEnded(t) {
				t.Error("a connection ends by a guess")
			}
		}}, cast{b, r, lb.TCP})
	}
}

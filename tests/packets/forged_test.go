package packets

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// forger sends packets in the name of both sides of connections, without a look at them: it
// knows addresses and ports, and guesses sequence numbers.
type forger struct {
	cast
	*rand.Rand
	idle *crowd
}

// TestForgedEndsLoseNoIdleConnection has 1,000 idle connections to a remote backend, each of
// another client. A stranger sends resets and FINs in the names of both sides, all guesses of
// two connections, SYNs by the same ports, and a flood of SYNs. A minute later clients of the
// same ports begin connections, which want the source ports that are taken.
func TestForgedEndsLoseNoIdleConnection(t *testing.T) {
	const flows = 1 << 15 // of which the idle connections take an eighth, and those that are open in the end six of seven
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = flows })
	lost := 0
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) {
			r.tell(t, story{tell: func(t *testing.T, c cast) { lost += forgeEnds(t, c) }}, cast{b, r, lb.TCP})
		})
	}
	t.Logf("figure lost_to_guesses %d", lost) // make bench reads it
}

// forgeEnds returns how many of 1,000 idle connections are lost.
func forgeEnds(t *testing.T, c cast) (lost int) {
	const connections, rounds, minute, ours = 1000, 6, 61, 1024
	backend := at(c.remote, 8080)
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	f := &forger{c, rand.New(rand.NewPCG(1, 1)), c.crowdFrom(c.client, ours)}
	for range connections {
		if !f.idle.begin(t) {
			t.Fatal("there is no port for an idle connection")
		}
	}
	first, second := f.idle.open[0], f.idle.open[1]
	f.forgeGrid(t, out, first.sent.to(first.sent.src, backend).with("RA"))
	f.forge(t, out, tunnel, second.sent.to(second.sent.src, backend).with("FA"))
	f.forgeGrid(t, in, second.left.answer("FA", nil))
	for range rounds {
		for i := range f.idle.open {
			f.forgeEnds(t, i)
		}
		f.floodSYNs(t, 2*f.table.room())
		c.age(t, minute)
		next := c.crowdFrom(neighbour(f.idle.client), ours)
		for range connections {
			if !next.begin(t) {
				t.Fatal("there is no port for a new connection")
			}
		}
		f.idle.client = next.client
	}
	for _, i := range f.idle.open {
		if !f.stillGoesOn(t, i.sent, i.left) {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d idle connections are lost", lost, connections)
	}
	return lost
}

// forgeEnds sends what a stranger may of one connection: resets, FINs and a SYN in the names
// of both sides, in any order.
func (f *forger) forgeEnds(t *testing.T, i int) {
	t.Helper()
	backend, sent, left := at(f.remote, 8080), f.idle.open[i].sent, f.idle.open[i].left
	all := []func(){}
	for _, flags := range []string{"R", "RA", "F", "FA"} {
		all = append(all, func() {
			f.forge(t, in, uplink, sent.with(flags))
			f.forge(t, out, tunnel, sent.to(sent.src, backend).with(flags))
		}, func() {
			a := left.answer(flags, nil)
			f.forge(t, in, tunnel, a)
			f.forge(t, out, uplink, a.to(backend, sent.src))
		})
	}
	f.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, send := range all {
		send()
	}
	f.forge(t, in, uplink, sent)
	f.forge(t, out, tunnel, sent.to(sent.src, backend))
}

// forgeGrid sends every guess that there is of both numbers, 16 MiB apart, of a packet to or from
// the backend. The first guess is wrong, as all but one of 65,536 are.
func (f *forger) forgeGrid(t *testing.T, h hook, p packet) {
	t.Helper()
	const step = 1 << 24
	frame, seq, ack := p.frame(t), f.wrongNumber(), f.wrongNumber()
	for n := range uint32(256 * 256) {
		f.forgeWith(t, h, tunnel, frame, seq+n/256*step, ack+n%256*step)
	}
}

// forge gives a packet with guessed numbers to a program. One guess in 65,536 is right, and
// ends a connection: none of these is.
func (f *forger) forge(t *testing.T, h hook, device string, p packet) {
	t.Helper()
	f.forgeWith(t, h, device, p.frame(t), f.wrongNumber(), f.Uint32())
}

func (f *forger) forgeWith(t *testing.T, h hook, device string, frame []byte, seq, ack uint32) {
	t.Helper()
	v, _ := parse(frame)
	binary.BigEndian.PutUint32(frame[v.l4+4:], seq)
	binary.BigEndian.PutUint32(frame[v.l4+8:], ack)
	f.run(t, h, device, frame)
}

// wrongNumber is no sequence number of either side, nor one near it.
func (f *forger) wrongNumber() uint32 {
	const near = 1 << 26 // bytes, four times the window of what proves an end
	for {
		if n := f.Uint32(); n-firstSeq+near > 2*near {
			return n
		}
	}
}

// floodSYNs sends SYNs of clients that nobody has.
func (f *forger) floodSYNs(t *testing.T, count int) {
	t.Helper()
	p := f.packet(at(f.other, 1), at(f.vip, 80), 0)
	frame := p.frame(t)
	v, _ := parse(frame)
	for range count {
		binary.BigEndian.PutUint16(frame[v.l4:], uint16(1024+f.IntN(60_000)))
		f.run(t, in, uplink, frame)
	}
}

// stillGoesOn says whether packets of an idle connection go where they went.
func (f *forger) stillGoesOn(t *testing.T, sent, left packet) bool {
	t.Helper()
	backend := at(f.remote, 8080)
	return f.goes(t, in, uplink, sent.with("A"), sent.with("A").to(sent.src, backend)) &&
		f.goes(t, out, tunnel, sent.to(sent.src, backend).with("A"), left.with("A")) &&
		f.goes(t, in, tunnel, left.answer("A", nil), left.answer("A", nil).to(backend, sent.src)) &&
		f.goes(t, out, uplink, left.answer("A", nil).to(backend, sent.src), left.answer("A", nil).to(sent.dst, sent.src))
}

func (f *forger) goes(t *testing.T, h hook, device string, p, want packet) bool {
	t.Helper()
	verdict, got := f.run(t, h, device, p.frame(t))
	return verdict == pass && string(got) == string(want.frame(t))
}

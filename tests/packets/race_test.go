package packets

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// start lets two CPUs begin each of their turns at the same time.
type start struct {
	arrived atomic.Int64
	failed  atomic.Bool
}

var errOtherFailed = errors.New("the other CPU has failed")

// wait waits for the other one to come to a turn, which they count from 1 on.
func (s *start) wait(turn int) error {
	s.arrived.Add(1)
	for spins := 0; s.arrived.Load() < 2*int64(turn); spins++ {
		if s.failed.Load() {
			return errOtherFailed
		}
		if spins%1000 == 999 {
			runtime.Gosched()
		}
	}
	return nil
}

// atOnce gives each packet to a program on two CPUs at once, and returns what was made of
// it: by both the same, and right but for the addresses. Some that one CPU dropped are
// counted and pass, since the kernel of a test may stop the other CPU at any instruction.
func (c cast) atOnce(t *testing.T, h hook, device string, packets []packet) (made []packet, dropped uint64) {
	t.Helper()
	results := c.tryAtOnce(t, h, device, packets, packets)
	wrong := 0
	for i, p := range packets {
		one, other := results[0][i], results[1][i]
		if one.verdict == drop {
			one, other = other, one
		}
		if other.verdict == drop {
			other = one
			dropped++
		}
		src, dst, ok := ends(one.frame)
		if q := p.to(src, dst); ok && one.verdict == pass && other.verdict == pass && bytes.Equal(one.frame, other.frame) && bytes.Equal(one.frame, q.frame(t)) {
			made = append(made, q)
			continue
		}
		if wrong++; wrong == 1 {
			t.Errorf("%s: %s: verdicts %d and %d\none CPU makes %s\nthe other %s", h, describe(p), one.verdict, other.verdict, dump(one.frame), dump(other.frame))
		}
	}
	if wrong > 0 {
		t.Fatalf("%s: %d of %d packets are wrong", h, wrong, len(packets))
	}
	return made, dropped
}

// tryAtOnce gives each of two CPUs packets, the next ones at the same time, and returns
// what was made of them.
func (c cast) tryAtOnce(t *testing.T, h hook, device string, packets ...[]packet) (results [2][]result) {
	t.Helper()
	var s start
	run := func(cpu int) func() error {
		return func() (err error) {
			defer func() { s.failed.CompareAndSwap(false, err != nil) }()
			for i, p := range packets[cpu] {
				frame := p.frame(t)
				if err := s.wait(i + 1); err != nil {
					return err
				}
				got, err := c.try(h, device, frame)
				if err != nil {
					return err
				}
				results[cpu] = append(results[cpu], got)
			}
			return nil
		}
	}
	must(t, <-onCPUs(t, run(0), run(1)))
	return results
}

// contest is many flows of which two CPUs see the first packets at once.
type contest struct {
	cast
	vip    netip.AddrPort
	kind   lb.FrontendKind
	first  []packet
	remote bool
}

const contestFlows = 500

// backends are eight, on the node or on others.
func (c contest) backends(port uint16) (all []netip.AddrPort) {
	hosts := []netip.Addr{c.local, c.local2}
	if c.remote {
		hosts = []netip.Addr{c.cast.remote, c.remote2}
	}
	for i := range uint16(4) {
		all = append(all, at(hosts[0], port+i), at(hosts[1], port+i))
	}
	return all
}

// begin has all flows begin at once on two CPUs, to backends from a port on: each has one
// backend and one port, both its directions, and counts once when it is confirmed.
func (c contest) begin(t *testing.T, port uint16) {
	t.Helper()
	backends := c.backends(port)
	frontend := c.vip
	if c.kind == lb.NodePort {
		frontend = at(unspecified(c.vip.Addr()), c.vip.Port())
	}
	c.set(t, "web", c.frontend(c.kind, frontend, backends...))
	before, hooks := c.flows(t), uint64(1)
	made, dropped := c.atOnce(t, in, uplink, c.first)
	there := c.table.keys(t)
	for i, q := range made {
		if p := c.first[i]; q.src != p.src || !slices.Contains(backends, q.dst) {
			t.Fatalf("%s becomes %s", describe(p), describe(q))
		}
		hasBoth(t, there, in, c.first[i], q)
	}
	if c.remote {
		hooks = 2
		left, none := c.atOnce(t, out, tunnel, made)
		dropped += none
		there = c.table.keys(t)
		for i, q := range left {
			if q.src.Addr() != c.tunnel || q.dst != made[i].dst {
				t.Fatalf("%s leaves as %s", describe(made[i]), describe(q))
			}
			hasBoth(t, there, out, made[i], q)
		}
	}
	if dropped > contestFlows/20 {
		t.Errorf("%d packets were dropped", dropped)
	}
	counts := map[string]uint64{"flow_made": hooks * contestFlows, "flow_packet": hooks*contestFlows - dropped}
	if dropped > 0 {
		counts["drop no_flow"], counts["drop no_flow of web"] = dropped, dropped
	}
	c.wantCounts(t, counts)
	c.wantInFlight(t, "all have begun", 0)
	c.confirm(t, made)
	c.wantInFlight(t, "all are confirmed", contestFlows)
	want := 2 * int(hooks) * contestFlows
	if before > 0 {
		want -= contestFlows // the original direction is another one now, the reply direction stays
	}
	if n := c.flows(t) - before; n != want {
		t.Errorf("%d directions were added, want %d; %d packets were dropped", n, want, dropped)
	}
}

// confirm has both sides of all flows confirm them, at once on two CPUs.
func (c contest) confirm(t *testing.T, made []packet) {
	t.Helper()
	var answers, later []packet
	for i, q := range made {
		answers, later = append(answers, q.answer("SA", nil)), append(later, c.first[i].with("A"))
	}
	c.atOnce(t, out, uplink, answers)
	if c.protocol != lb.TCP {
		c.age(t, 3)
	}
	c.atOnce(t, in, uplink, later)
	c.counted = c.counters(t)
}

// hasBoth says that there are both directions of a flow.
func hasBoth(t *testing.T, there map[key]bool, h hook, p, q packet) {
	t.Helper()
	for _, k := range []key{{h, p.src, p.dst, p.protocol}, {otherHook[h], q.dst, q.src, p.protocol}} {
		if !there[k] {
			t.Errorf("there is no entry %s %s → %s", k.hook, k.src, k.dst)
		}
	}
}

// TestAFlowThatBeginsOnTwoCPUs has one backend, and leaves nothing of the choice that was
// made in vain: neither where there was no flow, nor where there was one whose backend
// is gone.
func TestAFlowThatBeginsOnTwoCPUs(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			for _, c := range []contest{
				{vip: at(b.node, 30080), kind: lb.NodePort},
				{vip: at(b.node, 30080), kind: lb.NodePort, remote: true},
				{vip: at(b.cluster, 80), kind: lb.ClusterIP},
				{vip: at(b.cluster, 80), kind: lb.ClusterIP, remote: true},
			} {
				where := map[bool]string{false: "local", true: "remote"}[c.remote]
				t.Run(fmt.Sprint(b.family(), " ", protocol, " ", c.kind, " ", where), func(t *testing.T) {
					r.tell(t, story{tell: func(t *testing.T, told cast) {
						c.cast = told
						for i := range uint16(contestFlows) {
							c.first = append(c.first, c.packet(at(b.client, 20000+i), c.vip, 9))
						}
						c.begin(t, 8000)
						c.begin(t, 9000)
					}}, cast{b, r, protocol})
				})
			}
		}
	}
}

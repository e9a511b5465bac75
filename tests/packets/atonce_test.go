package packets

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// pairs is clients that each begin two connections at once, on two CPUs.
type pairs struct {
	cast
	clients []netip.Addr
	port    uint16
}

func newPairs(c cast) *pairs {
	all := &pairs{cast: c, port: 20000}
	for i := range uint32(500) {
		a := c.client.As16()
		binary.BigEndian.PutUint16(a[14:], uint16(i+1))
		all.clients = append(all.clients, netip.AddrFrom16(a).Unmap())
	}
	return all
}

// begin has each client begin two connections to an address, and returns their first
// packets and those that came of them.
func (c *pairs) begin(t *testing.T, vip netip.AddrPort) (sent, made [2][]packet) {
	t.Helper()
	for cpu := range sent {
		c.port++
		for _, a := range c.clients {
			sent[cpu] = append(sent[cpu], c.packet(at(a, c.port), vip, 0))
		}
	}
	results := c.tryAtOnce(t, in, uplink, sent[:]...)
	for cpu, all := range results {
		for i, got := range all {
			src, dst, ok := ends(got.frame)
			if !ok || got.verdict != pass {
				t.Fatalf("%s: verdict %d, now %s", describe(sent[cpu][i]), got.verdict, dump(got.frame))
			}
			made[cpu] = append(made[cpu], sent[cpu][i].to(src, dst))
		}
	}
	return sent, made
}

// haveOneEach says that both connections of each client went to one backend, and so do
// later ones.
func (c *pairs) haveOneEach(t *testing.T, when string, vip netip.AddrPort) {
	t.Helper()
	_, made := c.begin(t, vip)
	split := 0
	for i := range c.clients {
		if made[0][i].dst != made[1][i].dst {
			split++
		}
	}
	if split > 0 {
		t.Errorf("%s: of %d clients %d have got two backends", when, len(c.clients), split)
	}
	c.port++
	for i, a := range c.clients {
		p := c.packet(at(a, c.port), vip, 0)
		if got := c.comesOut(t, "a later connection", in, uplink, p); got.dst != made[0][i].dst {
			t.Fatalf("%s: a later connection goes to %s, the first one to %s", when, got.dst, made[0][i].dst)
		}
	}
}

// outlastAffinities makes all of them look as if they were last used long ago.
func (c *pairs) outlastAffinities(t *testing.T) {
	t.Helper()
	m := c.tables["affinities"]
	had := fieldOffset(t, m, "affinity", "had")
	var key, value []byte
	aged := map[string][]byte{}
	for entries := m.Iterate(); entries.Next(&key, &value); {
		v := append([]byte(nil), value...)
		binary.NativeEndian.PutUint64(v[had:], binary.NativeEndian.Uint64(v[had:])-1<<20)
		aged[string(key)] = v
	}
	for k, v := range aged {
		must(t, m.Put([]byte(k), v))
	}
}

// TestAClientHasOneBackendOnTwoCPUs where session affinity wants it: where it is new, where
// it was away for too long, and where its backend has gone.
func TestAClientHasOneBackendOnTwoCPUs(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Affinities = 1 << 14 })
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) {
			r.tell(t, story{tell: func(t *testing.T, c cast) {
				all, vip := newPairs(c), at(b.vip, 80)
				set := func(ports ...uint16) {
					var backends []netip.AddrPort
					for _, p := range ports {
						backends = append(backends, at(b.local, p), at(b.local2, p))
					}
					f := c.frontend(lb.LoadBalancerIP, vip, backends...)
					f.AffinityTimeout = 3600
					c.set(t, "web", f)
				}
				set(8000, 8001, 8002, 8003)
				all.haveOneEach(t, "new clients", vip)
				all.outlastAffinities(t)
				all.haveOneEach(t, "after a long while", vip)
				set(9000, 9001, 9002, 9003)
				all.haveOneEach(t, "after their backends", vip)
			}}, cast{b, r, lb.TCP})
		})
	}
}

// votes is what a backend holds against clients: votes, and who failed last.
func (r *rig) votes(t *testing.T, backend netip.AddrPort) uint8 {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(r.root+"/maps/backends", nil)
	must(t, err)
	defer m.Close()
	for id, b := range r.told.Backends {
		if at(b.Addr, b.Port) == backend {
			value, err := m.LookupBytes(id)
			must(t, err)
			return value[fieldOffset(t, m, "backend", "votes")]
		}
	}
	t.Fatalf("there is no backend %s", backend)
	return 0
}

// TestAClientHasOneVoteOnTwoCPUs, whose connections a backend refuses at once.
func TestAClientHasOneVoteOnTwoCPUs(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.EjectAfter, c.MaxEjected = 255, 50 })
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		all, vip, backend := newPairs(c), at(c.vip, 80), at(c.local, 8080)
		all.clients = all.clients[:200] // a backend counts no more than 255 votes
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
		for range 20 {
			var answers [2][]packet
			_, made := all.begin(t, vip)
			for cpu := range made {
				for _, p := range made[cpu] {
					answers[cpu] = append(answers[cpu], p.answer("RA", nil))
				}
			}
			c.tryAtOnce(t, out, uplink, answers[:]...)
			if got := c.votes(t, backend); got > 200 || got < 150 {
				t.Fatalf("200 clients were refused twice each, and the backend has %d votes against it", got)
			}
			c.forget(t)
			taken := c.packet(at(c.other, 1), vip, 0)
			c.becomes(t, "another connection", in, uplink, taken, taken.to(taken.src, backend))
			a := taken.to(taken.src, backend).answer("SA", nil)
			c.becomes(t, "is taken", out, uplink, a, a.to(vip, taken.src))
		}
	}}, cast{v4, r, lb.TCP})
}

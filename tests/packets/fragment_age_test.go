package packets

import (
	"encoding/binary"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// TestFragmentsHaveAnAge has a sender use the ID of a datagram again, and the network swap its fragments: the later one takes
// the ports of the datagram before only for as long as the kernel waits for fragments, 30 s.
func TestFragmentsHaveAnAge(t *testing.T) {
	r := newRig(t)
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: useAnIDAgain}, cast{b, r, lb.UDP}) })
	}
}

func useAnIDAgain(t *testing.T, c cast) {
	c.set(t, "one", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.local, 8080)))
	c.set(t, "two", c.frontend(lb.LoadBalancerIP, at(c.vip, 81), at(c.local2, 8081)))
	one := c.packet(at(c.client, 40000), at(c.vip, 80), 2000)
	two := c.packet(at(c.client, 40001), at(c.vip, 81), 2000)
	a, b := cut(one, 1, 1480, 2), cut(two, 1, 1480, 2)
	for _, part := range a {
		c.becomes(t, "a part of the first datagram", in, uplink, part, part.to(one.src, at(c.local, 8080)))
	}
	c.ageFragments(t, 28)
	c.becomes(t, "a part that may be of the same one", in, uplink, a[1], a[1].to(one.src, at(c.local, 8080)))
	c.ageFragments(t, 3)
	c.refused(t, "a part of another datagram, which waits", in, uplink, b[1])
	c.wantCounts(t, map[string]uint64{"flow_made": 1, "flow_packet": 2, "fragment_queued": 1})
	c.ageFragments(t, 31)
	c.becomes(t, "the first part of a third, which lets nothing of the second go", in, uplink, b[0], b[0].to(two.src, at(c.local2, 8081)))
	c.becomes(t, "and what follows", in, uplink, b[1], b[1].to(two.src, at(c.local2, 8081)))
	c.wantCounts(t, map[string]uint64{"flow_made": 1, "flow_packet": 1})
}

// ageFragments makes what is known of datagrams look as if it was so many seconds older.
func (r *rig) ageFragments(tb testing.TB, seconds uint64) {
	tb.Helper()
	m := r.tables["fragments"]
	noted := fieldOffset(tb, m, "datagram", "noted")
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	found := map[string][]byte{}
	for entries := m.Iterate(); entries.Next(&key, &value); {
		found[string(key)] = append([]byte(nil), value...)
	}
	for k, v := range found {
		binary.NativeEndian.PutUint16(v[noted:], binary.NativeEndian.Uint16(v[noted:])-uint16(seconds*1e9>>timeShift))
		must(tb, m.Put([]byte(k), v))
	}
}

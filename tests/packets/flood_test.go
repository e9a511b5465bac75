package packets

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// floodPackets is how many packets of strangers a flood has.
const floodPackets = "HEADGATE_FLOOD"

// flooder sends packets of sources that nobody has.
type flooder struct {
	*rand.Rand
	tcp, udp cast
	sent     int
}

// TestIdleConnectionsOutliveFloods has 1,000 connections that say nothing for nearly two
// hours and four minutes, in the smallest table that a machine gets, while strangers send
// datagrams that are answered and confirm their flows, SYNs and fragments.
func TestIdleConnectionsOutliveFloods(t *testing.T) {
	const connections, batch, pause, most = 1000, 20_000, 3, 7440 - 60
	total := int(number(t, floodPackets, 120_000))
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = 1 << 16 })
	f := &flooder{rand.New(rand.NewPCG(1, 1)), cast{v4, r, lb.TCP}, cast{v4, r, lb.UDP}, 0}
	vip, backend := at(v4.vip, 80), at(v4.local, 8080)
	r.set(t, "web", f.tcp.frontend(lb.LoadBalancerIP, vip, backend), f.udp.frontend(lb.LoadBalancerIP, vip, backend))
	var idle []packet
	for i := range uint16(connections) {
		idle = append(idle, f.tcp.establish(t, at(v4.client, 20_000+i), vip, backend))
	}
	r.age(t, uint64(max(0, most-total/batch*pause)))
	for f.sent < total {
		f.flood(t, min(batch, total-f.sent), pause)
	}
	lost := 0
	for _, p := range idle {
		if !r.goesOn(t, p, backend) {
			lost++
		}
	}
	counts := r.counters(t)
	t.Logf("figure lost_idle_connections %d", lost) // make bench reads it
	t.Logf("%d packets of strangers: of %d idle connections %d are lost; %d of %d ways are in use, %d half-open and %d confirmed directions made room, %d flows found none",
		f.sent, connections, lost, r.flows(t), r.table.room(), counts["flow_expired"], counts["flow_evicted"], counts["drop table_full"])
	if lost > 0 {
		t.Errorf("%d idle connections are lost", lost)
	}
	if counts["flow_expired"] == 0 || counts["flow_evicted"] == 0 {
		t.Error("nothing had to make room")
	}
}

// flood sends packets, of which datagrams are answered, and come again after a pause.
func (f *flooder) flood(t *testing.T, count int, pause uint64) {
	t.Helper()
	vip, backend := at(v4.vip, 80), at(v4.local, 8080)
	var again []packet
	for i := range count * 2 / 3 {
		src := at(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0x2d000000|f.Uint32N(1<<24)))), uint16(1024+f.IntN(60_000)))
		switch p := f.udp.packet(src, vip, 8); i % 4 {
		case 0, 1:
			f.send(t, in, p)
			f.send(t, out, p.to(src, backend).answer("", nil))
			again = append(again, p)
		case 2:
			f.send(t, in, f.tcp.packet(src, vip, 0))
		case 3:
			f.send(t, in, cut(f.udp.packet(src, vip, 100), f.Uint32(), 48, 2)[0])
		}
	}
	f.udp.age(t, pause)
	for _, p := range again {
		f.send(t, in, p)
	}
}

func (f *flooder) send(t *testing.T, h hook, p packet) {
	t.Helper()
	f.udp.run(t, h, uplink, p.frame(t))
	if h == in {
		f.sent++
	}
}

// goesOn says whether both sides of a connection still reach each other.
func (r *rig) goesOn(t *testing.T, p packet, backend netip.AddrPort) bool {
	t.Helper()
	a := p.to(p.src, backend).answer("A", nil)
	verdict, got := r.run(t, in, uplink, p.with("A").frame(t))
	verdictBack, gotBack := r.run(t, out, uplink, a.frame(t))
	return verdict == pass && verdictBack == pass && string(got) == string(p.with("A").to(p.src, backend).frame(t)) && string(gotBack) == string(a.to(p.dst, p.src).frame(t))
}

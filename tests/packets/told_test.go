package packets

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// lookAtTold returns the packets that a tracer has not seen yet, and how many more there were. Programs go on to tell until
// somebody says otherwise, however long a test takes.
func (r *rig) lookAtTold(t testing.TB, tracer *datapath.PacketTracer) (all []datapath.ToldPacket, lost uint64) {
	t.Helper()
	i, err := datapath.Inspect(r.root)
	must(t, err)
	defer i.Close()
	lost = tracer.Lost()
	must(t, tracer.Look(i, func(p datapath.ToldPacket) error {
		all = append(all, p)
		return nil
	}))
	r.say(t, map[bool]string{true: "drops_until_ns", false: "traced_until_ns"}[tracer.Drops], math.MaxInt64)
	return all, tracer.Lost() - lost
}

// refusals are the drops that were counted, by reason.
func (r *rig) refusals(t testing.TB) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	for name, n := range r.counters(t) {
		if reason, ok := strings.CutPrefix(name, "drop "); ok && !strings.Contains(reason, " of ") {
			out[reason] = n
		}
	}
	return out
}

// tracesRefusals has programs tell of packets that they refuse. What it returns compares that with what they have
// counted since.
func (r *rig) tracesRefusals(t testing.TB) (compare func()) {
	t.Helper()
	tracer := &datapath.PacketTracer{Drops: true}
	r.lookAtTold(t, tracer)
	before := r.refusals(t)
	return func() {
		t.Helper()
		after := r.refusals(t)
		all, lost := r.lookAtTold(t, tracer)
		r.say(t, "drops_until_ns", 0)
		told, more := map[string]uint64{}, uint64(0)
		for _, p := range all {
			r.wantWhole(t, p)
			told[p.Reason]++
		}
		for reason, n := range after {
			n -= before[reason]
			if told[reason] > n || told[reason] < n && lost == 0 {
				t.Errorf("%d refusals for %s are counted, %d are told of, and %d are left out", n, reason, told[reason], lost)
			}
			more += n
		}
		if more != uint64(len(all))+lost {
			t.Errorf("%d refusals are counted, %d are told of, and %d are left out", more, len(all), lost)
		}
	}
}

// wantWhole wants that nothing is missing of what is told of a packet, and notes where it was.
func (r *rig) wantWhole(t testing.TB, p datapath.ToldPacket) {
	t.Helper()
	device := ""
	for name, d := range r.devices {
		if d.Index == p.Device {
			device = name
		}
	}
	if r.toldAt == nil {
		r.toldAt = map[string]uint64{}
	}
	r.toldAt[p.Hook+" "+device]++
	ends := p.From.Addr().IsValid() && p.To.Addr().IsValid() && !p.To.Addr().IsUnspecified()
	if p.Verdict != datapath.Refused || device == "" || p.Hook != "in" && p.Hook != "out" || p.At.IsZero() || !ends {
		t.Errorf("what is told of a packet at device %q: %+v", device, p)
	}
}

// TestRefusalsAreToldWhileSomebodyLooks refuses packets beside those that TestPackets and TestCarrying compare with the counters:
// while nobody looks, while two do, more than can be told of, and those that a driver has passed on.
func TestRefusalsAreToldWhileSomebodyLooks(t *testing.T) {
	r, _ := newRepeatingRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: isToldWhileSomebodyLooks}, cast{b, r, protocol})
			})
		}
	}
}

func isToldWhileSomebodyLooks(t *testing.T, c cast) {
	c.set(t, "empty", c.frontend(lb.LoadBalancerIP, at(c.vip, 80)))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 4)
	refuse := func() { c.run(t, in, uplink, p.frame(t)) }
	first, second := &datapath.PacketTracer{Drops: true}, &datapath.PacketTracer{Drops: true}
	c.lookAtTold(t, first)
	c.lookAtTold(t, second)
	for name, until := range map[string]uint64{"nobody looks": 0, "whoever looked was killed": 1} {
		c.say(t, "drops_until_ns", until)
		before := c.rawTold(t)
		refuse()
		if !slices.Equal(c.rawTold(t), before) {
			t.Errorf("while %s something is told", name)
		}
	}
	c.lookAtTold(t, first)
	c.makeRoomToTell(t, "drops_told")
	began := time.Now()
	if passed := c.repeated(t, p.frame(t)); passed != nil {
		t.Errorf("the driver sends %s", dump(passed))
	}
	refuse()
	for name, tracer := range map[string]*datapath.PacketTracer{"the first": first, "the second": second} {
		all, lost := c.lookAtTold(t, tracer)
		if len(all) != 1 || lost != 0 {
			t.Fatalf("%s that looks is told of %d packets, and %d are left out: want 1", name, len(all), lost)
		}
		got := all[0]
		if got.From != p.src || got.To != p.dst || got.Protocol != c.protocol || got.Reason != "no_endpoint" || got.Hook != "in" || got.Device != c.devices[uplink].Index || c.told.Services[got.Service].Name != "empty" {
			t.Errorf("%s that looks is told of %+v", name, got)
		}
	}
	const many = 400 // in much less than the 4 s for which there is room
	for range many {
		refuse()
	}
	all, lost := c.lookAtTold(t, first)
	if most := 20 * (1 + int(time.Since(began)/(200*time.Millisecond))); len(all) > most {
		t.Errorf("%d packets are told of in %v, want at most %d", len(all), time.Since(began), most)
	}
	if got := uint64(len(all)) + lost; got != many || lost == 0 || len(all) == 0 {
		t.Errorf("of %d packets %d are told of, and %d are left out", many, len(all), lost)
	}
}

// readTold opens a map of what programs have told, and reads it by CPU.
func (r *rig) readTold(t *testing.T, name string) (m *ebpf.Map, cpus [][]byte) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(r.root+"/maps/"+name, nil)
	must(t, err)
	t.Cleanup(func() { m.Close() })
	must(t, m.Lookup(uint32(0), &cpus))
	return m, cpus
}

// rawTold is all that they have told of refused packets.
func (r *rig) rawTold(t *testing.T) []byte {
	t.Helper()
	_, cpus := r.readTold(t, "drops_told")
	return slices.Concat(cpus...)
}

// makeRoomToTell has programs tell of as many packets as in a time in which they have told of none.
func (r *rig) makeRoomToTell(t *testing.T, name string) {
	t.Helper()
	m, cpus := r.readTold(t, name)
	for _, own := range cpus {
		clear(own[:fieldOffset(t, m, "told_packets", "len")]) // when that began, and how many there were
	}
	must(t, m.Put(uint32(0), cpus))
}

func carriedIsTold(t *testing.T, f *fleet) {
	f.serve(t, 2)
	n, tracer := f.nodes[0], &datapath.PacketTracer{}
	n.lookAtTold(t, tracer)
	defer n.say(t, "traced_until_ns", 0)
	n.makeRoomToTell(t, "driver_told")
	begun := map[netip.AddrPort]bool{}
	for port := range uint16(8) { // which the driver tells of, too
		p := f.packet(40000+port, "S", 0)
		f.enter(t, 0, p.frame(t))
		begun[p.src] = true
	}
	f.enter(t, 0, f.packet(40000, "A", 0).frame(t))
	all, lost := n.lookAtTold(t, tracer)
	for _, p := range all {
		if p.Hook == "driver" {
			continue
		}
		ends := p.To == at(f.vip, 80) && p.NowFrom.Addr() == nodeAddr(0, f.overV6) && p.NowTo.Addr() == nodeAddr(1, f.overV6)
		if !begun[p.From] || !ends || p.Verdict != datapath.Carried || p.Protocol != lb.TCP || p.Hook != "in" || p.Device != n.devices[uplink].Index {
			t.Errorf("what is told is %+v", p)
		}
		delete(begun, p.From)
	}
	if len(begun) > 0 || lost > 0 {
		t.Errorf("nothing is told of %v, and %d are left out: %+v", begun, lost, all)
	}
}

package packets

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// What headgate explain replays in random states is what the packet then meets, and the
// replay leaves no trace.
func TestAReplayIsWhatThePacketThenMeets(t *testing.T) {
	r := newRig(t)
	seen := map[string]int{}
	for seed := range uint64(4) {
		w := newWorld(t, r, seed+1)
		reader, err := datapath.Inspect(r.root)
		must(t, err)
		replay, err := reader.NewReplay(string(in))
		must(t, err)
		for i := range uint16(60) {
			b := pick(w, v4, v6)
			from := at(pick(w, b.client, b.client, b.other), 20000+i)
			to := at(pick(w, b.vip, b.vip, b.vip2, b.cluster, b.node, b.node, b.services.Addr(), b.remote), pick[uint16](w, 80, 80, 81, 30080, 30081))
			seen[w.compareReplay(t, reader, replay, pick(w, lb.TCP, lb.UDP), from, to)]++
		}
		replay.Close()
		reader.Close()
	}
	t.Logf("seen: %v", seen)
	for _, what := range []string{"left alone", "to a backend", "no_local_endpoint", "no_service_port"} {
		if seen[what] == 0 {
			t.Errorf("no packet was %s: nothing is tested", what)
		}
	}
}

// compareReplay replays a packet, and then has the program in force see it. It returns what
// became of both.
func (w *world) compareReplay(t *testing.T, reader *datapath.Reader, replay *datapath.Replay, protocol lb.Protocol, from, to netip.AddrPort) string {
	t.Helper()
	before, flows := w.counters(t), flowsOf(t, reader)
	got, err := replay.Decide(w.devices[uplink].Index, protocol, from, to)
	must(t, err)
	if diff := cmp.Diff(before, w.counters(t)); diff != "" || flowsOf(t, reader) != flows {
		t.Errorf("a replay from %s to %s left a trace: %d flows, then %d, counters (-before +after):\n%s", from, to, flows, flowsOf(t, reader), diff)
	}
	met, err := w.try(in, uplink, packet{src: from, dst: to, protocol: protocol, flags: "S"}.frame(t))
	must(t, err)
	reason := ""
	for name, n := range w.counters(t) {
		if drop, ok := strings.CutPrefix(name, "drop "); ok && n > before[name] && !strings.Contains(drop, " of ") {
			reason = drop
		}
	}
	if got.Reason != reason {
		t.Errorf("%s from %s to %s: the replay is refused for %q, the packet for %q", protocol, from, to, got.Reason, reason)
	}
	if reason != "" {
		return reason
	}
	_, dst := plainEnds(met.frame)
	if (got.To == to) != (dst == to) {
		t.Errorf("%s from %s to %s: the replay goes to %s, the packet to %s", protocol, from, to, got.To, dst)
	}
	if dst == to {
		return "left alone"
	}
	_, f, found, err := reader.Meant(lb.AddrPort{Addr: to.Addr(), Port: to.Port(), Protocol: protocol})
	must(t, err)
	if !found || !isOf(t, reader, f, got.To) || !isOf(t, reader, f, dst) {
		t.Errorf("%s to %s: the replay goes to %s, the packet to %s, and the frontend (%v) has not both", protocol, to, got.To, dst, found)
	}
	return "to a backend"
}

// isOf says whether an address is that of a backend that a frontend has for clients
// elsewhere.
func isOf(t *testing.T, r *datapath.Reader, f plan.Frontend, at netip.AddrPort) bool {
	t.Helper()
	ids, err := r.Slots(f.Views[lb.External].Table)
	must(t, err)
	for _, id := range ids {
		if b := r.Backend(id).At; netip.AddrPortFrom(b.Addr, b.Port) == at {
			return true
		}
	}
	return false
}

// flowsOf counts directions of flows.
func flowsOf(t *testing.T, r *datapath.Reader) (n int) {
	t.Helper()
	must(t, r.Flows(func(datapath.Flow) error { n++; return nil }))
	return n
}

// plainEnds returns the ends of a packet without options.
func plainEnds(frame []byte) (src, dst netip.AddrPort) {
	l4, size := 34, 4
	if frame[14]>>4 == 6 {
		l4, size = 54, 16
	}
	end := func(addr, port int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(frame[addr : addr+size])
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(frame[port:]))
	}
	return end(l4-2*size, l4), end(l4-size, l4+2)
}

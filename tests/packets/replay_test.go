package packets

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/cli"
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

// While the flow table fills, headgate explain knows of nearly each connection whether it finds room: it looks for that of
// both directions apart, and the last way that is free may be one for both.
func TestItIsKnownWhichFlowsFindNoRoom(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = 30 * flowWays })
	vip, backend := at(v4.vip, 80), at(v4.local, 8080)
	c := cast{v4, r, lb.TCP}
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, backend))
	reader, err := datapath.Inspect(r.root)
	must(t, err)
	defer reader.Close()
	seen, wrong := map[bool]int{}, 0
	for port := range uint16(250) {
		p := packet{src: at(v4.client, 2000+port), dst: vip, protocol: lb.TCP, flags: "S"}
		lacking, err := reader.NoRoom(lb.TCP, vip, backend, p.src)
		must(t, err)
		before := r.counters(t)["drop table_full"]
		_, err = r.try(in, uplink, p.frame(t))
		must(t, err)
		refused := r.counters(t)["drop table_full"] > before
		seen[refused]++
		if refused != (lacking == 1) {
			wrong++
		}
		if refused {
			continue
		}
		_, err = r.try(out, uplink, packet{src: backend, dst: p.src, protocol: lb.TCP, flags: "SA"}.frame(t))
		must(t, err)
		_, err = r.try(in, uplink, p.with("A").frame(t))
		must(t, err)
	}
	for _, client := range []string{v4.client.String(), v4.client.String() + ":2000"} {
		got := explained(t, r, client, vip.String())
		if full := !strings.Contains(client, ":"); full != strings.Contains(got, "refused: table_full") || full && !strings.Contains(got, "201 new flows of this client find no room now: raise --flows") {
			t.Errorf("of a client at %s it says:\n%s", client, got)
		}
	}
	if wrong > 10 {
		t.Errorf("of %d connections it is not known whether they find room", wrong)
	}
	if seen[true] < 50 || seen[false] < 90 {
		t.Errorf("%d are refused and %d are not: that tests little", seen[true], seen[false])
	}
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

// A packet that is carried goes to the backend that its home then gives it, and others go to the backend that the node gives
// them, whichever peers are usable just then. The driver sees each packet, too.
func explainKnowsTheBackend(t *testing.T, f *fleet) {
	f.serve(t, 0, 1, 2, 3, 4, 5)
	const seed = 1
	n, random := f.nodes[0], rand.New(rand.NewPCG(seed, seed))
	reader, err := datapath.Inspect(n.root)
	must(t, err)
	defer reader.Close()
	seen := map[string]int{}
	for step := range uint16(2) {
		for other := 1; other < len(f.nodes); other++ {
			n.setUsable(t, f, other, random.IntN(3) > 0)
			defer n.setUsable(t, f, other, true)
		}
		replay, err := reader.NewReplay(string(in))
		must(t, err)
		for port := range uint16(12) {
			p := f.packet(42000+12*step+port, "S", 0)
			before := n.counters(t)
			d, err := replay.Decide(n.devices[uplink].Index, f.protocol, p.src, p.dst)
			must(t, err)
			if diff := cmp.Diff(before, n.counters(t)); diff != "" {
				t.Errorf("seed %d: a replay leaves a trace (-before +after):\n%s", seed, diff)
			}
			if diff := f.meets(t, p, d); diff != "" {
				t.Errorf("seed %d, step %d, from %s: %s", seed, step, p.src, diff)
			}
			seen[fmt.Sprint("carried: ", d.CarriedTo.IsValid())]++
		}
		p := f.packet(42000+12*step, "S", 0)
		f.wantExplained(t, replay, p)
		replay.Close()
	}
	if len(seen) < 2 {
		t.Errorf("seed %d: %v: that tests little", seed, seen)
	}
}

// meets says how what a packet of node 0 meets differs from what was said of it.
func (f *fleet) meets(t *testing.T, p packet, d datapath.Decision) string {
	t.Helper()
	got, err := f.nodes[0].try(in, uplink, p.frame(t))
	must(t, err)
	if len(got.frame) <= len(p.frame(t)) {
		if _, dst := plainEnds(got.frame); d.CarriedTo.IsValid() || dst != d.To {
			return fmt.Sprintf("the replay goes to %s by %v, the packet to %s", d.To, d.CarriedTo, dst)
		}
		return ""
	}
	at := f.enter(t, 0, p.frame(t))
	if _, backend, _ := ends(at.frame); at.what != "delivered" || backend != d.To || f.nodes[at.node].addr != d.CarriedTo {
		return fmt.Sprintf("the replay goes to %s by %v, the packet is %s at %s, for %s", d.To, d.CarriedTo, at.what, f.nodes[at.node].addr, backend)
	}
	return ""
}

// wantExplained wants the command to say what a replay decides.
func (f *fleet) wantExplained(t *testing.T, replay *datapath.Replay, p packet) {
	t.Helper()
	n := f.nodes[0]
	d, err := replay.Decide(n.devices[uplink].Index, f.protocol, at(p.src.Addr(), p.src.Port()), p.dst)
	must(t, err)
	want := fmt.Sprintf("outcome   this packet goes to %s/%s", d.To, f.protocol)
	if d.CarriedTo.IsValid() {
		want += fmt.Sprintf(": forwarded (DSR) to the node at %s, and the backend answers the client directly\n", d.CarriedTo)
	} else {
		want += ", with "
	}
	if got := explained(t, n.rig, p.src.String(), p.dst.String()); !strings.Contains(got, want) {
		t.Errorf("it says\n%s\nwant %s", got, want)
	}
}

// The same of backends outside, one of which fails its probes.
func explainKnowsTheBackendOutside(t *testing.T, e edge) {
	e.serves(t, []int{1, 2, 3}, 1, 2, 3)
	e.judge(t, 2, false)
	n := e.nodes[0]
	reader, err := datapath.Inspect(n.root)
	must(t, err)
	defer reader.Close()
	replay, err := reader.NewReplay(string(in))
	must(t, err)
	defer replay.Close()
	for port := range uint16(12) {
		p := e.packet(40000+port, "S", 0)
		d, err := replay.Decide(n.devices[uplink].Index, e.protocol, p.src, p.dst)
		must(t, err)
		is := -1
		for b := 1; b <= outsideBackends; b++ {
			if at := e.backend(b); netip.AddrPortFrom(at.Addr, at.Port) == d.To && d.CarriedTo == e.hostOf(b) {
				is = b
			}
		}
		if b := e.goesTo(t, "what begins", p); b == 2 || is < 0 || is == 2 {
			t.Errorf("from %s: the replay goes to %s by %s, the packet to %d", p.src, d.To, d.CarriedTo, b)
		}
	}
}

// explained is what headgate explain says of a client elsewhere.
func explained(t *testing.T, r *rig, from, to string) string {
	t.Helper()
	var out, wrong bytes.Buffer
	if code := cli.Run([]string{"explain", "--from", from, to, "--bpf-root", r.root, "--state-dir", t.TempDir()}, "test", &out, &wrong); code != 0 {
		t.Errorf("explain ends with %d: %s", code, wrong.String())
	}
	return out.String()
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

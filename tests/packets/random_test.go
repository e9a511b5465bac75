package packets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// world is a datapath and its model, with Services that change and packets
// that come, all by chance.
type world struct {
	*rig
	*rand.Rand
	model *model
	known []key // of flows, some of them forgotten
	began carried
	sent  []sentFrame
}

// sentFrame is a frame that a world gave to the programs, with their verdict.
type sentFrame struct {
	hook    hook
	device  string
	frame   []byte
	verdict uint32
}

// servicesEach is how many Services a world has of each family and protocol, at most.
const servicesEach = 4

// newWorld returns a world whose Services and packets follow from its seed and the choices of
// the datapath, not from the worlds before.
func newWorld(tb testing.TB, r *rig, seed uint64) *world {
	tb.Helper()
	for _, b := range []book{v4, v6} {
		for _, p := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
			for n := range servicesEach {
				r.set(tb, randomService(b, p, n))
			}
		}
	}
	r.setCIDRs(tb)
	r.forget(tb)
	r.counted = r.counters(tb)
	w := &world{rig: r, Rand: rand.New(rand.NewPCG(seed, seed)), model: newModel(r), began: r.carriedBy(tb)}
	for range 32 {
		w.changeService(tb)
	}
	return w
}

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

// worldFrames is how many frames a world gets: neither a map nor the ports run full, which
// the model would not know.
const worldFrames = 5000

// TestRandomPackets gives random packets to the programs and to the model.
// HEADGATE_PACKETS says how many, HEADGATE_SEED where to begin. What
// the datapath chooses is not from the seed, so that the same one may go
// another way.
func TestRandomPackets(t *testing.T) {
	r := newRig(t)
	total := map[string]uint64{}
	seed := number(t, "HEADGATE_SEED", 1)
	for begin, n := seed, number(t, "HEADGATE_PACKETS", 100_000); n > 0; n -= min(n, worldFrames) {
		w := newWorld(t, r, seed)
		for i := range min(n, worldFrames) {
			if err := w.step(t); err != nil {
				t.Fatalf("seed %d (began with %d), packet %d: %v\ncounters, of all worlds: %v", seed, begin, i, err, w.counters(t))
			}
		}
		w.compareCounters(t, seed)
		for name, n := range w.model.counts {
			total[name] += n
		}
		seed++
	}
	t.Logf("seen: %v", total)
	for _, name := range []string{"flow_made", "flow_packet", "flow_error", "affinity", "fragment_queued", "drop fragment", "drop no_endpoint", "drop no_local_endpoint", "drop no_service_port", "drop no_service", "drop martian", "drop no_flow", "flow_established", "flow_broken", "flow_reset"} {
		if total[name] == 0 {
			t.Errorf("no packet led to %s: nothing is tested", name)
		}
	}
}

// FuzzPackets gives frames to one world after the other, so with -parallel 1 (make fuzz),
// since the machine of the tests is one.
func FuzzPackets(f *testing.F) {
	if given, worker := flag.Lookup("test.fuzz"), flag.Lookup("test.fuzzworker"); given.Value.String() == "" || worker.Value.String() == "true" {
		fuzzHere(f)
		return
	}
	addSeeds(f)
	f.Fuzz(func(*testing.T, bool, []byte) {}) // this process only tells the worker what to do
}

// addSeeds adds packets to Services: with options, in fragments, and short ones.
func addSeeds(f *testing.F) {
	w := &world{Rand: rand.New(rand.NewPCG(1, 2))}
	for range 300 {
		p := w.anyPacket()
		f.Add(false, p.frame(f))
		f.Add(true, p.answer("A", p.payload).frame(f))
	}
}

func fuzzHere(f *testing.F) {
	r := newRig(f)
	var w *world
	frames := uint64(0)
	addSeeds(f)
	f.Fuzz(func(t *testing.T, leaves bool, frame []byte) {
		if frames%worldFrames == 0 {
			w = newWorld(t, r, frames)
			for range 200 {
				must(t, w.step(t))
			}
		}
		if frames%500 == 0 {
			r.allowResets(t)
		}
		frames++
		h := map[bool]hook{true: out, false: in}[leaves]
		if len(frame) < ethernetLen+40 || len(frame) > 3000 {
			return
		}
		if err := w.both(t, h, uplink, frame); err != nil {
			t.Fatal(err)
		}
	})
}

func number(tb testing.TB, variable string, otherwise uint64) uint64 {
	tb.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	must(tb, err)
	return n
}

// step gives one packet to both, and now and then changes something.
func (w *world) step(tb testing.TB) error {
	switch w.IntN(400) {
	case 0, 1:
		w.changeService(tb)
	case 2:
		w.age(tb, 200)
		for _, f := range w.model.flows {
			f.idle = true
			f.begun = f.begun.Add(-200 * time.Second)
		}
	case 3:
		prefixes := []netip.Prefix{v4.services, v6.services}
		w.setCIDRs(tb, prefixes[:w.IntN(3)]...)
	}
	h, device := pick(w, in, out), pick(w, uplink, tunnel)
	frame := w.frame(tb, &h)
	return w.both(tb, h, device, frame)
}

// both gives a frame to the programs and what they do to the model.
func (w *world) both(tb testing.TB, h hook, device string, frame []byte) error {
	w.model.given = time.Now() // before, as the kernel may stop this for long
	got, err := w.try(h, device, frame)
	if errors.Is(err, unix.EINVAL) && len(frame) < ethernetLen+40 {
		return nil
	}
	if err != nil {
		return err
	}
	tb.Helper()
	w.sent = append(w.sent, sentFrame{h, device, bytes.Clone(frame), got.verdict})
	before, queued := len(w.model.flows), w.model.counts["fragment_queued"]
	w.model.missing, w.model.mayConfirm, w.model.mayBegin = nil, nil, nil
	if err := w.model.judge(h, w.devices[device], frame, got); err != nil {
		return fmt.Errorf("%s on %s: %w\ngiven %s\nframes with one of its ends:\n%s", h, device, err, dump(frame), w.related(frame))
	}
	if v := w.model.mayBegin; v != nil && w.has(tb, v.key) {
		must(tb, w.model.begin(*v, v.src, v.dst, v.src.Port(), &modelFlow{bypass: true}))
	}
	for _, m := range w.model.missing {
		if w.has(tb, m.key) {
			w.model.flows[m.key] = m.flow
			if !m.flow.halfOpen {
				w.model.counts["flow_restored"]++
			}
		}
	}
	if err := w.compareConfirmed(tb); err != nil {
		return err
	}
	if w.model.counts["fragment_queued"] > queued {
		w.forgetQueued(h, frame)
	}
	if v, ok := parse(frame); ok && len(w.model.flows) > before {
		v.hook = h
		w.known = append(w.known, v.key)
		if f := w.model.flows[v.key]; f != nil {
			w.known = append(w.known, f.otherKey(v.key), key{out, f.src, f.dst, v.protocol})
		}
	}
	return nil
}

// related lists the frames so far that go from or to one of the ends of a frame.
func (w *world) related(frame []byte) string {
	v, ok := parse(frame)
	if !ok {
		return "(it has no ports)"
	}
	var out strings.Builder
	for i, f := range w.sent {
		if o, ok := parse(f.frame); ok && (o.src == v.src || o.src == v.dst || o.dst == v.src || o.dst == v.dst) {
			fmt.Fprintf(&out, "%d %s on %s, verdict %d: %x\n", i, f.hook, f.device, f.verdict, f.frame)
		}
	}
	return out.String()
}

// compareConfirmed looks whether datagrams have confirmed their flow: not before it is
// two seconds old, as the clock of flows has them, which goes by 0.27 s.
func (w *world) compareConfirmed(tb testing.TB) error {
	tb.Helper()
	for _, k := range w.model.mayConfirm {
		at, there := w.table.find(tb, k)
		if !there || at.state&flagHalfOpen != 0 {
			continue
		}
		f := w.model.flows[k]
		other := w.model.flows[f.otherKey(k)]
		if age := time.Since(other.begun); age < 1700*time.Millisecond {
			return fmt.Errorf("a flow of datagrams is confirmed after %v", age)
		}
		w.model.confirm(f, other)
	}
	return nil
}

// compareCounters compares what was counted since the world of a seed began.
func (w *world) compareCounters(tb testing.TB, seed uint64) {
	tb.Helper()
	now, got := w.counters(tb), map[string]uint64{}
	for name, n := range now {
		if n != w.counted[name] && !bytes.Contains([]byte(name), []byte(" of ")) {
			got[name] = n - w.counted[name]
		}
	}
	if got := w.carriedBy(tb).since(w.began); got != w.model.carried {
		tb.Fatalf("seed %d: flows carried %+v, want %+v", seed, got, w.model.carried)
	}
	if diff := cmp.Diff(w.model.counts, got); diff != "" {
		tb.Fatalf("seed %d, counted (-want +got):\n%s", seed, diff)
	}
}

func randomService(b book, p lb.Protocol, n int) string {
	return fmt.Sprint("service-", b.family(), "-", p, "-", n)
}

// changeService gives one of a few Services other frontends and backends.
func (w *world) changeService(tb testing.TB) {
	tb.Helper()
	b, n := pick(w, v4, v6), w.IntN(servicesEach)
	c := cast{b, w.rig, pick(w, lb.TCP, lb.UDP, lb.UDP, lb.SCTP)}
	frontends := []lb.Frontend{}
	backends := []netip.AddrPort{}
	for _, a := range []netip.Addr{b.local, b.local2, b.remote, b.remote2} {
		if w.IntN(2) == 0 {
			backends = append(backends, at(a, 8080))
		}
	}
	affinity := pick[uint32](w, 0, 0, 3600)
	for _, f := range []lb.Frontend{
		c.frontend(lb.LoadBalancerIP, at(pick(w, b.vip, b.vip2), 80), backends...),
		c.frontend(lb.ClusterIP, at(b.cluster, 80+uint16(n)), backends...),
		c.frontend(lb.NodePort, at(unspecified(b.client), 30080+uint16(n)), backends...),
	} {
		if w.IntN(4) == 0 {
			continue
		}
		f.AffinityTimeout = affinity
		switch w.IntN(6) {
		case 0:
			f.Views[lb.External] = lb.View{NoLocal: len(backends) > 0}
		case 1:
			f.Views[lb.External].Backends = f.Members[:w.IntN(len(f.Members)+1)] // the others drain
		}
		frontends = append(frontends, f)
	}
	w.set(tb, randomService(b, c.protocol, n), frontends...)
	if w.IntN(10) == 0 {
		w.apply(tb, w.planner.Sweep())
	}
}

// frame makes a packet, whole or mutated.
func (w *world) frame(tb testing.TB, h *hook) []byte {
	tb.Helper()
	var frame []byte
	switch {
	case len(w.known) > 0 && w.IntN(10) == 0:
		frame = w.anyError(tb, h)
	case len(w.known) > 0 && w.IntN(2) == 0:
		k := pick(w, w.known...)
		*h = k.hook
		frame = w.decorated(packet{src: k.src, dst: k.dst, protocol: k.protocol}).frame(tb)
	default:
		frame = w.anyPacket().frame(tb)
	}
	if w.IntN(20) == 0 {
		tag := pick(w, []byte{0x81, 0, 0, 5}, []byte{0x88, 0xa8, 0, 5, 0x81, 0, 0, 6}, bytes.Repeat([]byte{0x81, 0, 0, 5}, 3+w.IntN(3)))
		frame = slices.Concat(frame[:12], tag, frame[12:])
	}
	if w.IntN(5) == 0 {
		frame = w.mutated(frame)
	}
	return frame
}

func (w *world) anyPacket() packet {
	b := pick(w, v4, v6)
	nobody := pick(w, b.noSources()...)
	hosts := []netip.Addr{nobody, b.client, b.client, b.other, b.node, b.tunnel, b.vip, b.vip, b.vip2, b.cluster, b.local, b.remote, loopback(b, 0).Addr(), b.services.Addr()}
	ports := []uint16{80, 80, 81, 8080, 30080, 30081, 40000, 40001, 40002, 16384, 0}
	return w.decorated(packet{src: at(pick(w, hosts...), pick(w, ports...)), dst: at(pick(w, hosts...), pick(w, ports...)), protocol: pick(w, lb.TCP, lb.TCP, lb.UDP, lb.UDP, lb.SCTP, 47)})
}

// decorated is a packet with flags, payload and headers of all kinds.
func (w *world) decorated(p packet) packet {
	p.flags = pick(w, "S", "S", "A", "SA", "F", "R", "")
	p.ttl = pick[uint8](w, 0, 0, 0, 0, 0, 0, 1, 2)
	p.payload = bytes.Repeat([]byte{byte(w.Uint32())}, w.IntN(60))
	if w.IntN(16) == 0 {
		p.inner = []header{pick(w, destination, routing)}
	}
	p.noChecksum = w.IntN(8) == 0 && p.protocol == lb.UDP
	if w.IntN(4) == 0 {
		p.options = bytes.Repeat([]byte{1}, 4*w.IntN(11))
		for range w.IntN(7) {
			p.headers = append(p.headers, pick(w, hopByHop, destination, routing, authentication, wholeFragment, laterFragment))
		}
	}
	if w.IntN(4) == 0 {
		size := 8 * (1 + w.IntN(4))
		p.fragment = &fragment{id: uint32(w.IntN(3)), offset: pick(w, 0, 0, 8, 16), size: size} // so few IDs that datagrams overlap
		p.payload = bytes.Repeat([]byte("y"), 60)
	}
	return p
}

// anyError is an ICMP error about a packet of a flow, or the answer to one.
func (w *world) anyError(tb testing.TB, h *hook) []byte {
	tb.Helper()
	k := pick(w, w.known...)
	*h = k.hook
	b := v6
	if k.src.Addr().Is4() {
		b = v4
	}
	about := w.decorated(packet{src: k.dst, dst: k.src, protocol: k.protocol})
	about.fragment = nil
	errors := b.errors()
	e := errors[pick(w, slices.Sorted(maps.Keys(errors))...)]
	e.from, e.to = pick(w, b.router, k.src.Addr()), k.dst.Addr()
	e.about = about.datagram(tb)
	e.about = e.about[:w.IntN(len(e.about)+1)]
	return e.frame(tb)
}

// mutated is a frame with some bytes changed, or cut short, or longer.
func (w *world) mutated(frame []byte) []byte {
	for range 1 + w.IntN(3) {
		frame[12+w.IntN(len(frame)-12)] = byte(w.Uint32())
	}
	switch w.IntN(4) {
	case 0:
		return frame[:ethernetLen+20+w.IntN(len(frame)-ethernetLen-19)]
	case 1:
		return binary.BigEndian.AppendUint64(frame, w.Uint64())
	}
	return frame
}

package packets

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// atDriver is the program that repeats at the driver what the others did.
const atDriver hook = "uplink"

// Verdicts, as of linux/bpf.h.
const (
	xdpPass     = 2
	xdpTurn     = 3
	xdpRedirect = 4
)

// newRepeatingRig loads the datapath with all that the driver repeats, and has this test stay
// on one CPU. Packets to the remote backends and to clients leave by the uplink, and have the
// Ethernet addresses that are returned.
func newRepeatingRig(t *testing.T) (*rig, []byte) {
	t.Helper()
	stayOnOneCPU(t)
	r := newRigOf(t, func(c *datapath.Config) { c.XDP = true })
	r.openDriver(t)
	r.sendsXDP(t, r.devices[uplink])
	return r, r.routeTo(t, v4.remote, v6.remote, v4.client, v6.client)
}

// openDriver opens the program of drivers.
func (r *rig) openDriver(t *testing.T) {
	t.Helper()
	p, err := ebpf.LoadPinnedProgram(filepath.Join(r.root, "maps", string(atDriver)), nil)
	must(t, err)
	t.Cleanup(func() { p.Close() })
	r.programs[atDriver] = p
}

func stayOnOneCPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	var all, one unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &all))
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	must(t, unix.SchedSetaffinity(0, &one))
}

// sendsXDP has a device be one whose driver sends frames, without attaching there.
func (r *rig) sendsXDP(t *testing.T, d plan.Device) {
	t.Helper()
	const deviceXDP = 1 << 2
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.root, "maps", "devices"), nil)
	must(t, err)
	defer m.Close()
	value, err := m.LookupBytes(d.Index)
	must(t, err)
	if value == nil { // of another node
		value = make([]byte, m.ValueSize())
	}
	value[fieldOffset(t, m, "device", "flags")] |= deviceXDP
	must(t, m.Put(d.Index, value))
}

// atTC gives a frame to the programs of the device where it comes and leaves, and returns what
// they send; nil for nothing that goes past the stack.
func (r *rig) atTC(t *testing.T, frame []byte) []byte {
	t.Helper()
	verdict, made := r.run(t, in, uplink, frame)
	if verdict != redirect {
		return nil
	}
	if verdict, made = r.run(t, out, uplink, made); verdict != pass {
		return nil // a reset: no source port was free for a connection that is found again
	}
	return made
}

// repeated gives it to the driver of the uplink, and returns what that sends; nil for nothing: then it
// is as it was.
func (r *rig) repeated(t testing.TB, frame []byte) []byte {
	t.Helper()
	return r.drive(t, uplink, frame)
}

// drive does so with the driver of a device.
func (r *rig) drive(t testing.TB, device string, frame []byte) []byte {
	t.Helper()
	var ctx [24]byte // struct xdp_md
	binary.NativeEndian.PutUint32(ctx[4:], uint32(len(frame)))
	binary.NativeEndian.PutUint32(ctx[12:], r.devices[device].Index)
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: ctx}
	verdict, err := r.programs[atDriver].Run(opts)
	must(t, err)
	switch {
	case verdict == xdpTurn, verdict == xdpRedirect:
		return opts.DataOut
	case verdict != xdpPass:
		t.Fatalf("the driver says %d to %s", verdict, dump(frame))
	case !bytes.Equal(frame, opts.DataOut):
		t.Fatalf("what the driver passes on has changed:\nfrom %s\nto   %s", dump(frame), dump(opts.DataOut))
	}
	return nil
}

// comparison has the driver see each packet that comes in before TC does, and counts what it did.
type comparison struct{ sent, passed int }

// before gives a frame to the driver, and returns what that sends.
func (c *comparison) before(tb testing.TB, r *rig, h hook, device string, frame []byte) []byte {
	tb.Helper()
	if c == nil || h != in || len(frame) < ethernetLen {
		return nil
	}
	return r.drive(tb, device, frame)
}

// after compares it with what TC does.
func (c *comparison) after(tb testing.TB, frame, sent []byte, got result) {
	tb.Helper()
	switch {
	case c == nil:
	case sent == nil:
		c.passed++
	case got.verdict != redirect || !bytes.Equal(sent, got.frame):
		tb.Fatalf("of %s\nthe driver makes %s\nTC %d            %s", dump(frame), dump(sent), got.verdict, dump(got.frame))
	default:
		c.sent++
	}
}

// route is a flow through another node: what comes from the client, and from the backend.
type route struct{ ask, answer packet }

// begun takes a flow to a remote backend through its handshake. Flows of datagrams are
// confirmed two seconds after they began.
func (c cast) begun(t *testing.T, port uint16) route {
	t.Helper()
	ask := c.packet(at(c.client, port), at(c.vip, 80), 10)
	src, dst, ok := ends(c.atTC(t, ask.frame(t)))
	if !ok {
		t.Fatalf("%s does not leave", describe(ask))
	}
	answer := ask.to(dst, src).with("SA")
	if c.atTC(t, answer.frame(t)) == nil {
		t.Fatalf("%s does not leave", describe(answer))
	}
	if c.protocol == lb.UDP {
		c.age(t, 3)
	}
	return route{ask.with("A"), answer.with("A")}
}

// settles has both sides confirm flows, some time after a Service has lost a backend: what is
// noted at the same time is asked for its own, and not repeated.
func (r *rig) settles(t *testing.T, ways ...route) {
	t.Helper()
	time.Sleep(300 * time.Millisecond) // more than a unit of flow_time
	for _, w := range ways {
		r.atTC(t, w.ask.frame(t))
		r.atTC(t, w.answer.frame(t))
	}
}

// established returns a flow that is.
func (c cast) established(t *testing.T, port uint16) route {
	t.Helper()
	way := c.begun(t, port)
	c.settles(t, way)
	return way
}

// repeatedAfter has TC see a packet of a flow, and gives a frame to the driver at once. An entry ends
// up to a second after its flow was noted: where the kernel stops the test meanwhile, the next packet
// at TC is noted, and begins another second.
func (r *rig) repeatedAfter(t *testing.T, atTC func(), frame []byte) []byte {
	t.Helper()
	for range 10 {
		atTC()
		if got := r.repeated(t, frame); got != nil {
			return got
		}
	}
	return nil
}

// TestTheDriverRepeatsWhatTCDid tells of packets within flows through another node, twice: what
// leaves is the same to the last byte.
func TestTheDriverRepeatsWhatTCDid(t *testing.T) {
	r, macs := newRepeatingRig(t)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) { c.isRepeated(t, macs) }}, cast{b, r, protocol})
			})
		}
	}
}

func (c cast) isRepeated(t *testing.T, macs []byte) {
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
	way := c.established(t, 40000)
	for _, s := range []struct {
		name   string
		change func(p *packet)
		passed bool
	}{
		{"as it is", func(*packet) {}, false},
		{"nothing in it", func(p *packet) { p.payload = nil }, false},
		{"an odd number of bytes", func(p *packet) { p.payload = []byte("odd") }, false},
		{"as long as the route allows", func(p *packet) { p.payload = make([]byte, c.room()) }, false},
		{"a byte longer", func(p *packet) { p.payload = make([]byte, c.room()+1) }, true},
		{"the most hops", func(p *packet) { p.ttl = 255 }, false},
		{"two hops left", func(p *packet) { p.ttl = 2 }, false},
		{"one hop left", func(p *packet) { p.ttl = 1 }, true},
		{"no checksum", func(p *packet) { p.noChecksum = true }, false},
		{"options of IPv4", func(p *packet) { p.options = []byte{1, 1, 1, 0} }, c.client.Is4()},
		{"a fragment", func(p *packet) { p.payload = make([]byte, 64); p.fragment = &fragment{id: 7, size: 40} }, true},
		{"SYN", func(p *packet) { p.flags = "S" }, c.protocol == lb.TCP},
		{"SYN and ACK", func(p *packet) { p.flags = "SA" }, c.protocol == lb.TCP},
	} {
		for direction, p := range map[string]packet{"ask": way.ask, "answer": way.answer} {
			plain := p.frame(t)
			s.change(&p)
			frame := p.frame(t)
			got := c.repeatedAfter(t, func() { c.atTC(t, plain) }, frame) // also after SYN and the like
			if (got == nil) != s.passed {
				t.Errorf("%s, %s: repeated as %s", direction, s.name, dump(got))
			}
			if got == nil {
				continue
			}
			if want := c.atTC(t, frame); !bytes.Equal(got, want) || !bytes.Equal(got[:12], macs) {
				t.Errorf("%s, %s:\nby XDP %s\nby TC  %s", direction, s.name, dump(got), dump(want))
			}
		}
	}
}

// room is how long the payload of a packet may be in an Ethernet.
func (c cast) room() int {
	n := 1500 - 20 - 20
	if !c.client.Is4() {
		n -= 20
	}
	if c.protocol == lb.UDP {
		n += 12
	}
	return n
}

// TestWhatEndsARepetition holds what the driver leaves to TC.
func TestWhatEndsARepetition(t *testing.T) {
	r, _ := newRepeatingRig(t)
	for _, end := range []struct {
		what    string
		happens func(t *testing.T, c cast, way route)
		tcp     bool // ends connections, and not datagrams
	}{
		{"the backend leaves", func(t *testing.T, c cast, _ route) {
			c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote2, 8080)))
		}, false},
		{"another Service loses a backend", func(t *testing.T, c cast, _ route) {
			c.set(t, "other", c.frontend(lb.LoadBalancerIP, at(c.vip2, 80), at(c.local, 1)))
			c.set(t, "other")
		}, false},
		{"a second passes", func(*testing.T, cast, route) { time.Sleep(1400 * time.Millisecond) }, false},
		{"the driver of the device is left alone", func(t *testing.T, c cast, _ route) {
			must(t, c.dp.SetDevices(slices.Collect(maps.Values(c.devices))))
			c.sendsXDP(t, c.devices[uplink])
		}, false},
		{"a FIN", func(t *testing.T, c cast, way route) { c.isPassed(t, way.ask.with("FA")) }, true},
		{"a reset", func(t *testing.T, c cast, way route) { c.isPassed(t, way.ask.with("R")) }, true},
		{"a SYN", func(t *testing.T, c cast, way route) { c.isPassed(t, way.ask.with("S")) }, true},
	} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(protocol.String()+", "+end.what, func(t *testing.T) {
				r.tell(t, story{tell: func(t *testing.T, c cast) {
					c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
					way := c.established(t, 40000)
					frame := way.ask.frame(t)
					if c.repeatedAfter(t, func() { c.atTC(t, frame) }, frame) == nil {
						t.Fatal("nothing is repeated")
					}
					if protocol != lb.TCP && end.tcp {
						return
					}
					end.happens(t, c, way)
					if got := c.repeated(t, frame); got != nil {
						t.Errorf("it is repeated as %s", dump(got))
					}
				}}, cast{v4, r, protocol})
			})
		}
	}
}

// TestTheDriverCountsAsTCDoes holds what is counted of a packet that is repeated.
func TestTheDriverCountsAsTCDoes(t *testing.T) {
	r, _ := newRepeatingRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, 8080)))
		frame := c.established(t, 40000).ask.frame(t)
		c.repeatedAfter(t, func() {
			c.counted = c.counters(t)
			c.atTC(t, frame)
			c.wantCounts(t, map[string]uint64{"flow_packet": 2, "flow_redirected": 1})
		}, frame)
		c.wantCounts(t, map[string]uint64{"flow_packet": 2, "flow_redirected": 1, "flow_repeated": 1})
	}}, cast{v4, r, lb.TCP})
}

// TestRandomPacketsAtTheDriver gives random packets to the driver and to TC: it sends what they
// would, or passes them on. HEADGATE_REPEATED says how many.
func TestRandomPacketsAtTheDriver(t *testing.T) {
	r, _ := newRepeatingRig(t)
	seed := number(t, "HEADGATE_SEED", 1)
	random := rand.New(rand.NewPCG(seed, seed))
	repeated, passed := 0, 0
	var ways []route
	for i := range number(t, "HEADGATE_REPEATED", 50_000) {
		if i%2000 == 0 {
			ways = r.newWays(t, random)
		}
		frame := anyFrameOf(t, random, ways[random.IntN(len(ways))])
		got := r.repeated(t, frame)
		want := r.atTC(t, frame)
		if got == nil {
			passed++
			continue
		}
		if repeated++; !bytes.Equal(got, want) {
			t.Fatalf("seed %d, packet %d: %s\nby XDP %s\nby TC  %s", seed, i, dump(frame), dump(got), dump(want))
		}
	}
	t.Logf("%d repeated, %d passed", repeated, passed)
	if repeated == 0 || passed == 0 {
		t.Error("nothing is tested")
	}
}

// newWays makes other Services, with a flow for each family and protocol by some ports.
func (r *rig) newWays(t *testing.T, random *rand.Rand) (ways []route) {
	r.forget(t)
	for _, s := range r.planner.Services() {
		r.set(t, s.Name)
	}
	r.apply(t, r.planner.Sweep())
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			c := cast{b, r, protocol}
			c.set(t, b.family()+protocol.String(), c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, uint16(1+random.IntN(60000)))))
			for range 4 {
				ways = append(ways, c.begun(t, uint16(1024+random.IntN(60000))))
			}
		}
	}
	r.settles(t, ways...)
	return ways
}

// anyFrameOf returns a packet of a flow, or one that once was.
func anyFrameOf(t *testing.T, random *rand.Rand, way route) []byte {
	p := way.ask
	if random.IntN(2) == 0 {
		p = way.answer
	}
	p.ttl = uint8(random.IntN(256))
	p.noChecksum = random.IntN(8) == 0
	p.payload = make([]byte, random.IntN(1600))
	for i := range p.payload {
		p.payload[i] = byte(random.Uint32())
	}
	if random.IntN(50) == 0 {
		p.flags = []string{"FA", "S", "SA", "R", ""}[random.IntN(5)]
	}
	frame := p.frame(t)
	if random.IntN(4) == 0 { // headers that are wrong
		frame[random.IntN(min(len(frame), 80))] ^= 1 << random.IntN(8)
	}
	if random.IntN(8) == 0 { // padding
		frame = append(frame, make([]byte, random.IntN(40))...)
	}
	return frame
}

// isPassed gives the driver and TC a packet that the driver leaves alone.
func (c cast) isPassed(t *testing.T, p packet) {
	t.Helper()
	if got := c.repeated(t, p.frame(t)); got != nil {
		t.Errorf("%s is repeated as %s", describe(p), dump(got))
	}
}

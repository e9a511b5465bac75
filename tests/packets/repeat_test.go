package packets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// stayOnOneCPU keeps every thread of the process on the first CPU until the test ends: subtests run on
// other threads, and express entries are per CPU.
func stayOnOneCPU(t *testing.T) {
	t.Helper()
	var all, one unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &all))
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	setAffinity(t, &one)
	t.Cleanup(func() { setAffinity(t, &all) })
}

// setAffinity sets the CPUs of every thread of the process. A thread that starts meanwhile has those of the thread
// that starts it, so a second pass finds it.
func setAffinity(t *testing.T, cpus *unix.CPUSet) {
	t.Helper()
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		must(t, err)
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			must(t, err)
			if err := unix.SchedSetaffinity(id, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
				t.Fatal(err)
			}
		}
	}
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
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: r.driverContext(device, frame)}
	verdict, err := r.programs[atDriver].Run(opts)
	must(t, err)
	return sentByDriver(t, verdict, frame, opts.DataOut)
}

// driverContext is struct xdp_md of linux/bpf.h.
func (r *rig) driverContext(device string, frame []byte) []byte {
	var ctx [24]byte
	binary.NativeEndian.PutUint32(ctx[4:], uint32(len(frame)))
	binary.NativeEndian.PutUint32(ctx[12:], r.devices[device].Index)
	return ctx[:]
}

// sentByDriver returns what it made of a frame, nil if it passes that on.
func sentByDriver(t testing.TB, verdict uint32, frame, made []byte) []byte {
	switch {
	case verdict == xdpTurn, verdict == xdpRedirect:
		return made
	case verdict != xdpPass:
		t.Fatalf("the driver says %d to %s", verdict, dump(frame))
	case !bytes.Equal(frame, made):
		t.Fatalf("what the driver passes on has changed:\nfrom %s\nto   %s", dump(frame), dump(made))
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

// confirmSeconds is after how long flows of datagrams may be confirmed.
const confirmSeconds = 3

// begun takes a flow to a remote backend through its handshake, and has it be old enough.
func (c cast) begun(t *testing.T, port uint16) route {
	t.Helper()
	way := c.greeted(t, port)
	if c.protocol == lb.UDP {
		c.age(t, confirmSeconds)
	}
	return way
}

// greeted takes a flow to a remote backend through its handshake.
func (c cast) greeted(t *testing.T, port uint16) route {
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
		{"the source address is no longer the node's", func(t *testing.T, c cast, _ route) { c.freesSources(t, nil, 1) }, false},
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

// isPassed gives the driver and TC a packet that the driver leaves alone.
func (c cast) isPassed(t *testing.T, p packet) {
	t.Helper()
	if got := c.repeated(t, p.frame(t)); got != nil {
		t.Errorf("%s is repeated as %s", describe(p), dump(got))
	}
}

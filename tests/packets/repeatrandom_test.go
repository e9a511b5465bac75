package packets

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Flows of a random test, for each family and protocol, and how many packets they get: then come others,
// as random flags have ended some.
const waysOfEach, waysFrames = 64, 50_000

// TestRandomPacketsAtTheDriver gives random packets to the driver and to TC: it sends what they
// would, or passes them on. HEADGATE_REPEATED says how many.
func TestRandomPacketsAtTheDriver(t *testing.T) {
	r, _ := newRepeatingRig(t)
	f := newFast(r)
	seed := number(t, "HEADGATE_SEED", 1)
	random := newChance(seed)
	repeated, passed := 0, 0
	var ways []heads
	for i := range number(t, "HEADGATE_REPEATED", 100_000) {
		if i%waysFrames == 0 {
			ways = r.newWays(t, random, waysOfEach)
		}
		frame := random.anyFrameOf(ways[random.IntN(len(ways))])
		got := f.repeated(t, frame)
		want := f.atTC(t, frame)
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

// fast gives many frames to the programs of the uplink. What they make is good until the next.
type fast struct {
	in, out, driver *runner
}

func newFast(r *rig) *fast {
	skb := r.context(uplink)
	return &fast{
		in:     newRunner(r.programs[in], skb[:]),
		out:    newRunner(r.programs[out], skb[:]),
		driver: newRunner(r.programs[atDriver], r.driverContext(uplink, nil)),
	}
}

// runner is a program with memory that is used again: library calls take as long as the kernel.
type runner struct {
	attr struct { // of BPF_PROG_TEST_RUN, linux/bpf.h
		program, verdict, sizeIn, sizeOut uint32
		in, out                           unsafe.Pointer
		_, _, contextSize, _              uint32
		context                           unsafe.Pointer
		_                                 [3]uint64
	}
	context []byte
	made    [8192]byte
}

func newRunner(p *ebpf.Program, context []byte) *runner {
	r := &runner{context: context}
	r.attr.program, r.attr.contextSize = uint32(p.FD()), uint32(len(context))
	r.attr.context, r.attr.out = unsafe.Pointer(&context[0]), unsafe.Pointer(&r.made[0])
	return r
}

func (r *runner) run(t *testing.T, frame []byte) (uint32, []byte) {
	r.attr.sizeIn, r.attr.sizeOut, r.attr.in = uint32(len(frame)), uint32(len(r.made)), unsafe.Pointer(&frame[0])
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&r.attr)), unsafe.Sizeof(r.attr))
	if errno != 0 {
		t.Fatal(errno)
	}
	return r.attr.verdict, r.made[:r.attr.sizeOut]
}

// repeated does what that of the rig does.
func (f *fast) repeated(t *testing.T, frame []byte) []byte {
	binary.NativeEndian.PutUint32(f.driver.context[4:], uint32(len(frame)))
	verdict, made := f.driver.run(t, frame)
	return sentByDriver(t, verdict, frame, made)
}

// atTC does what that of the rig does.
func (f *fast) atTC(t *testing.T, frame []byte) []byte {
	verdict, made := f.in.run(t, frame)
	if verdict != redirect {
		return nil
	}
	if verdict, made = f.out.run(t, made); verdict != pass {
		return nil // a reset: no source port was free for a connection that is found again
	}
	return made
}

// newWays makes other Services, with so many flows for each family and protocol by some ports.
func (r *rig) newWays(t *testing.T, random *chance, each int) []heads {
	r.forget(t)
	for _, s := range r.planner.Services() {
		r.set(t, s.Name)
	}
	r.apply(t, r.planner.Sweep())
	var ways []route
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			c := cast{b, r, protocol}
			c.set(t, b.family()+protocol.String(), c.frontend(lb.LoadBalancerIP, at(c.vip, 80), at(c.remote, uint16(1+random.IntN(60000)))))
			for _, port := range random.Perm(60000)[:each] {
				ways = append(ways, c.greeted(t, uint16(1024+port)))
			}
		}
	}
	r.age(t, confirmSeconds)
	r.settles(t, ways...)
	var list []heads
	for _, w := range ways {
		list = append(list, heads{newHead(t, w.ask), newHead(t, w.answer)})
	}
	return list
}

// heads is a flow, as the headers of both directions.
type heads struct {
	ask, answer head
}

// head is the headers of a packet. A frame from it takes less time than one from a packet.
type head struct {
	bytes    []byte
	at       int // where that of the transport is
	protocol lb.Protocol
}

func newHead(tb testing.TB, p packet) head {
	p.payload = nil
	h := head{p.frame(tb), ethernetLen + 40, p.protocol}
	if p.is4() {
		h.at = ethernetLen + 20
	}
	return h
}

// with appends a frame with a payload to a buffer.
func (h head) with(to, payload []byte, change func(ip, transport []byte), noChecksum bool) []byte {
	frame := append(append(to, h.bytes...), payload...)
	ip, transport := frame[ethernetLen:h.at], frame[h.at:]
	length := uint16(len(transport))
	change(ip, transport)
	field := transport[6:] // of its checksum
	if h.protocol == lb.TCP {
		field = transport[16:]
	} else {
		binary.BigEndian.PutUint16(transport[4:], length)
	}
	addrs := ip[8:]
	if len(ip) == 20 {
		binary.BigEndian.PutUint16(ip[2:], length+20)
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], sum16(ip))
		addrs = ip[12:]
	} else {
		binary.BigEndian.PutUint16(ip[4:], length)
	}
	binary.BigEndian.PutUint16(field, 0)
	if !noChecksum {
		binary.BigEndian.PutUint16(field, sum16(addrs, binary.BigEndian.AppendUint16([]byte{0, byte(h.protocol)}, length), transport))
	}
	return frame
}

// chance has bytes for payloads beside numbers.
type chance struct {
	*rand.Rand
	bytes [1 << 16]byte
	frame [2048]byte
}

func newChance(seed uint64) *chance {
	c := &chance{Rand: rand.New(rand.NewPCG(seed, seed))}
	for i := range c.bytes {
		c.bytes[i] = byte(c.Uint32())
	}
	return c
}

// anyFrameOf returns a packet of a flow, or one that once was. It is good until the next.
func (c *chance) anyFrameOf(way heads) []byte {
	h := way.ask
	if c.IntN(2) == 0 {
		h = way.answer
	}
	payload := c.bytes[c.IntN(len(c.bytes)-1600):][:c.IntN(1600)]
	frame := h.with(c.frame[:0], payload, func(ip, transport []byte) { c.decorate(h, ip, transport) }, c.IntN(8) == 0)
	if c.IntN(4) == 0 { // headers that are wrong
		frame[c.IntN(min(len(frame), 80))] ^= 1 << c.IntN(8)
	}
	if c.IntN(8) == 0 { // padding
		frame = append(frame, make([]byte, c.IntN(40))...)
	}
	return frame
}

// decorate changes hops, and now and then flags of TCP.
func (c *chance) decorate(h head, ip, transport []byte) {
	hops := 7
	if len(ip) == 20 {
		hops = 8
	}
	ip[hops] = uint8(c.IntN(256))
	if h.protocol == lb.TCP && c.IntN(50) == 0 {
		const fin, syn, rst, ack = 1, 2, 4, 16
		transport[13] = []byte{fin | ack, syn, syn | ack, rst, 0}[c.IntN(5)]
	}
}

// TestAFrameFromAHeadIsThatOfItsPacket compares both ways to make one.
func TestAFrameFromAHeadIsThatOfItsPacket(t *testing.T) {
	c := newChance(1)
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			for size := range 50 {
				p := packet{src: at(b.client, 40000), dst: at(b.vip, 80), protocol: protocol, flags: "A", noChecksum: size%3 == 0}
				h := newHead(t, p)
				p.payload = c.bytes[size:][:size]
				if got, want := h.with(nil, p.payload, func(_, _ []byte) {}, p.noChecksum), p.frame(t); !bytes.Equal(got, want) {
					t.Fatalf("%d bytes: %s\nwant %s", size, dump(got), dump(want))
				}
			}
		}
	}
}

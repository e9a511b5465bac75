package packets

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// redirect is the verdict of packets that leave at once, of linux/pkt_cls.h.
const redirect = 7

// TCP flags, as in a header.
const flagFIN, flagSYN, flagRST, flagACK = 1, 2, 4, 16

// reset returns the frame that answers one of TCP by RFC 9293, 3.10.7.1, with
// everything else of it turned round; false if there is none.
func (v view) reset(frame []byte) ([]byte, bool) {
	if v.protocol != lb.TCP || v.later || v.more || len(frame) < v.l4+20 {
		return nil, false
	}
	headers, plain := v.l4-v.l3, 20
	if !v.is4 {
		plain = 40
	}
	tcp := frame[v.l4 : v.l4+20]
	size := v.end - v.l4 - int(tcp[12]>>4)*4
	if headers != plain || tcp[13]&flagRST != 0 || size < 0 {
		return nil, false
	}
	seq, ack, flags := binary.BigEndian.Uint32(tcp[8:]), uint32(0), byte(flagRST)
	if tcp[13]&flagACK == 0 {
		ack = binary.BigEndian.Uint32(tcp[4:]) + uint32(size) + uint32(tcp[13]>>1&1) + uint32(tcp[13]&1)
		seq, flags = 0, flagRST|flagACK
	}
	segment := make([]byte, 20)
	binary.BigEndian.PutUint16(segment, v.dst.Port())
	binary.BigEndian.PutUint16(segment[2:], v.src.Port())
	binary.BigEndian.PutUint32(segment[4:], seq)
	binary.BigEndian.PutUint32(segment[8:], ack)
	segment[12], segment[13] = 5<<4, flags
	src, dst := v.dst.Addr().AsSlice(), v.src.Addr().AsSlice()
	binary.BigEndian.PutUint16(segment[16:], sum16(src, dst, []byte{0, 6, 0, 20}, segment))
	var ip []byte
	if v.is4 {
		ip = bytes.Join([][]byte{{0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0}, src, dst}, nil)
		binary.BigEndian.PutUint16(ip[10:], sum16(ip))
	} else {
		ip = bytes.Join([][]byte{{0x60, 0, 0, 0, 0, 20, 6, 64}, src, dst}, nil)
	}
	return bytes.Join([][]byte{frame[6:12], frame[:6], frame[12:v.l3], ip, segment}, nil), true
}

// isReset says that a program answers a packet with a reset.
func (r *rig) isReset(tb testing.TB, what string, h hook, device string, p packet) {
	tb.Helper()
	frame := p.frame(tb)
	v, ok := parse(frame)
	want, due := v.reset(frame)
	if !ok || !due {
		tb.Fatalf("%s: no reset is due to %s", what, dump(frame))
	}
	verdict, got := r.run(tb, h, device, frame)
	if verdict != redirect || !bytes.Equal(got, want) {
		tb.Fatalf("%s: %s on %s: verdict %d\ngiven %s\ngot   %s\nwant  %s", what, h, device, verdict, dump(frame), dump(got), dump(want))
	}
}

// wantReset says whether a frame was answered with a reset, or dropped where
// none is due.
func (r result) wantReset(frame []byte, v view, m *model) error {
	want, due := v.reset(frame)
	if !due {
		return r.wantDrop("no reset is due")
	}
	m.counts["flow_reset"]++
	if r.verdict != redirect {
		return r.wantVerdict(redirect)
	}
	return result{pass, r.frame}.want(want)
}

// allowResets gives every CPU as many resets as it may send in a second.
func (r *rig) allowResets(tb testing.TB) {
	tb.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.root, "maps", "reset_budgets"), nil)
	must(tb, err)
	defer m.Close()
	budgets := make([][]byte, ebpf.MustPossibleCPU())
	for cpu := range budgets {
		budgets[cpu] = make([]byte, m.ValueSize())
	}
	must(tb, m.Put(uint32(0), budgets))
}

// resetStories are told by TestPackets.
var resetStories = []story{
	{"A reset says what the packet needs", aResetSaysWhatThePacketNeeds},
	{"A reset is not sent in answer to everything", aResetIsNotSentInAnswerToEverything},
	{"Resets are not sent without end", resetsAreLimited},
}

func aResetSaysWhatThePacketNeeds(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	c.set(t, "empty", c.frontend(lb.LoadBalancerIP, at(c.vip, 80)))
	for _, flags := range []string{"S", "A", "FA", "SA", "F", "", "SF"} {
		for _, size := range []int{0, 1, 7, 1400, 3000} {
			p := c.packet(at(c.client, 40000), at(c.vip, 80), size).with(flags)
			p.ttl = 3
			c.isReset(t, "a packet "+flags, in, uplink, p)
		}
	}
	padded := c.packet(at(c.client, 40000), at(c.vip, 80), 0).frame(t)
	c.isAnswered(t, "a padded frame", append(padded, 0, 0, 0, 0, 0, 0), padded)
	whole := c.packet(at(c.client, 40000), at(c.vip, 80), 7).with("F").frame(t)
	c.isAnswered(t, "a super-packet without a length", c.withoutLength(whole), whole)
	if n := c.flows(t); n > 0 {
		t.Errorf("%d tuples are kept", n)
	}
	c.wantCounts(t, map[string]uint64{"flow_reset": 37, "drop no_endpoint": 37, "drop no_endpoint of empty": 37})
}

// isAnswered fails unless a frame gets the reset that is due to a plain one.
func (c cast) isAnswered(t *testing.T, what string, frame, plain []byte) {
	t.Helper()
	v, _ := parse(plain)
	want, _ := v.reset(plain)
	verdict, got := c.run(t, in, uplink, frame)
	if verdict != redirect || !bytes.Equal(got, want) {
		t.Errorf("%s: verdict %d, %s\nwant %s", what, verdict, dump(got), dump(want))
	}
}

// withoutLength is a frame whose IP header names no length, as in a super-packet.
func (c cast) withoutLength(frame []byte) []byte {
	frame = bytes.Clone(frame)
	at := ethernetLen + 2
	if !c.vip.Is4() {
		at = ethernetLen + 4
	}
	copy(frame[at:], []byte{0, 0})
	return frame
}

func aResetIsNotSentInAnswerToEverything(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	c.set(t, "empty", c.frontend(lb.LoadBalancerIP, at(c.vip, 80)))
	p := c.packet(at(c.client, 40000), at(c.vip, 80), 60)
	c.refused(t, "a reset", in, uplink, p.with("R"))
	c.refused(t, "a reset", in, uplink, p.with("RA"))
	c.refused(t, "the first of some fragments", in, uplink, cut(p, 1, 40, 2)[0])
	strange := p
	strange.options, strange.headers = []byte{1, 1, 1, 1}, []header{hopByHop}
	if c.client.Is4() {
		strange.headers = nil
	} else {
		strange.options = nil
	}
	c.refused(t, "one with options", in, uplink, strange)
}

// resetsAreLimited sends more than a second allows, on one CPU.
func resetsAreLimited(t *testing.T, c cast) {
	if c.protocol != lb.TCP {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old, one unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &old))
	for cpu := range 1024 {
		if one.Count() == 0 && old.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	must(t, unix.SchedSetaffinity(0, &one))
	defer func() { must(t, unix.SchedSetaffinity(0, &old)) }()
	c.set(t, "empty", c.frontend(lb.LoadBalancerIP, at(c.vip, 80)))
	frame := c.packet(at(c.client, 40000), at(c.vip, 80), 0).frame(t)
	sent, began := 0, time.Now()
	for range 5000 {
		verdict, _ := c.run(t, in, uplink, frame)
		if verdict == redirect {
			sent++
		} else if verdict != drop {
			t.Fatalf("verdict %d", verdict)
		}
	}
	seconds := 2 + int(time.Since(began)/time.Second)
	if sent > 1000*seconds || sent == 5000 && seconds < 5 {
		t.Errorf("%d resets in %s", sent, time.Since(began))
	}
	time.Sleep(1100 * time.Millisecond)
	c.isReset(t, "after a while", in, uplink, c.packet(at(c.client, 40000), at(c.vip, 80), 0))
}

package packets

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// testRun is a BPF_PROG_TEST_RUN that is made once and repeated without an allocation: what a test wants to see takes
// some nanoseconds, so both CPUs have to be in programs most of the time.
type testRun struct {
	attr    [80]byte // union bpf_attr, its member test
	frame   []byte
	out     []byte
	context [192]byte
}

func (r *rig) testRun(h hook, device string, frame []byte) *testRun {
	run := &testRun{frame: frame, out: make([]byte, len(frame)+64), context: r.contextOf(h, device)}
	address := func(b *byte) uint64 { return uint64(uintptr(unsafe.Pointer(b))) }
	ne := binary.NativeEndian
	ne.PutUint32(run.attr[0:], uint32(r.programs[h].FD()))
	ne.PutUint32(run.attr[8:], uint32(len(frame)))        // data_size_in
	ne.PutUint64(run.attr[16:], address(&frame[0]))       // data_in
	ne.PutUint64(run.attr[24:], address(&run.out[0]))     // data_out
	ne.PutUint32(run.attr[40:], uint32(len(run.context))) // ctx_size_in
	ne.PutUint64(run.attr[48:], address(&run.context[0])) // ctx_in
	return run
}

// do runs the program and returns its verdict; what it sends is in out.
func (run *testRun) do() (uint32, error) {
	ne := binary.NativeEndian
	ne.PutUint32(run.attr[12:], uint32(len(run.out))) // data_size_out, which the kernel writes, too
	_, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&run.attr[0])), uintptr(len(run.attr)))
	if e != 0 {
		return 0, e
	}
	return ne.Uint32(run.attr[4:]), nil // retval
}

// TestAReaderNeverTakesTheTargetOfAnotherFlow has one CPU send first packets of some clients to a Service, and the other
// one flood another Service, in a table so small that each way is given to other flows all the time: no packet becomes
// what those of the other Service become. HEADGATE_READS says how many are sent.
func TestAReaderNeverTakesTheTargetOfAnotherFlow(t *testing.T) {
	r := newRigOf(t, func(c *datapath.Config) { c.Flows = 1024 })
	for _, b := range []book{v4, v6} {
		for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP} {
			t.Run(b.family()+" "+protocol.String(), func(t *testing.T) {
				r.tell(t, story{tell: readBesideAFlood}, cast{b, r, protocol})
			})
		}
	}
}

func readBesideAFlood(t *testing.T, c cast) {
	mine, flooded := at(c.local, 8080), at(c.local, 9999)
	c.set(t, "mine", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), mine))
	c.set(t, "flooded", c.frontend(lb.LoadBalancerIP, at(c.vip2, 81), flooded))
	var clients []*testRun
	for i := range uint16(200) {
		clients = append(clients, c.testRun(in, uplink, c.packet(at(c.client, 40000+i), at(c.vip, 80), 0).frame(t)))
	}
	flood := c.testRun(in, uplink, c.packet(at(c.other, 1), at(c.vip2, 81), 0).frame(t))
	v, _ := parse(flood.frame)
	source := v.l3 + 14 // where its address ends
	if !v.is4 {
		source = v.l3 + 22
	}
	var done atomic.Bool
	var floods, passed int
	var wrong []string
	must(t, <-onCPUs(t, func() error {
		defer done.Store(true)
		for i := range number(t, "HEADGATE_READS", 200_000) {
			run := clients[i%uint64(len(clients))]
			verdict, err := run.do()
			if err != nil {
				return err
			}
			if verdict != pass {
				continue // the flood has all ways of its sets
			}
			passed++
			src, dst, _ := ends(run.out[:len(run.frame)])
			if dst != mine {
				wrong = append(wrong, fmt.Sprintf("%s → %s", src, dst))
			}
		}
		return nil
	}, func() error {
		for ; !done.Load(); floods++ {
			binary.BigEndian.PutUint16(flood.frame[v.l4:], uint16(1024+floods%60_000))
			binary.BigEndian.PutUint16(flood.frame[source:], uint16(floods/60_000))
			if _, err := flood.do(); err != nil {
				return err
			}
		}
		return nil
	}))
	t.Logf("%d of a flood, %d passed beside it", floods, passed)
	if passed == 0 || floods < 1000 {
		t.Error("nothing is tested")
	}
	if len(wrong) > 0 {
		t.Errorf("%d of %d packets to %s became those of another flow, such as %s", len(wrong), passed, mine, wrong[0])
	}
}

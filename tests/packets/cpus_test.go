package packets

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// onCPUs runs functions at the same time, each on a CPU of its own, and sends what the
// first of them to fail returns. It skips the test on a machine that has fewer.
func onCPUs(t *testing.T, functions ...func() error) <-chan error {
	t.Helper()
	var all unix.CPUSet
	must(t, unix.SchedGetaffinity(0, &all))
	if all.Count() < len(functions) {
		t.Skipf("needs %d CPUs, this machine has %d", len(functions), all.Count())
	}
	var group errgroup.Group
	for cpu := 0; len(functions) > 0; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		run := functions[0]
		functions = functions[1:]
		group.Go(func() error {
			runtime.LockOSThread() // and never unlocked: the thread ends with the function
			var one unix.CPUSet
			one.Set(cpu)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				return fmt.Errorf("go to CPU %d: %w", cpu, err)
			}
			return run()
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	return ended
}

// stream is datagrams of one flow, and to whom the first of them went.
type stream struct {
	frame []byte
	to    netip.AddrPort
}

func (c cast) stream(tb testing.TB, client netip.AddrPort, vip netip.AddrPort) stream {
	tb.Helper()
	p := c.packet(client, vip, 9)
	p.noChecksum = true // of which the port is no part, see from
	return stream{frame: p.frame(tb)}
}

// from is another stream, from another port.
func (s stream) from(port uint16) stream {
	s.frame, s.to = bytes.Clone(s.frame), netip.AddrPort{}
	binary.BigEndian.PutUint16(s.frame[ethernetLen+20:], port)
	return s
}

// send sends the next datagram, which goes where the first one went.
func (s *stream) send(r *rig) error {
	got, err := r.try(in, uplink, s.frame)
	if err != nil {
		return err
	}
	src, dst, ok := ends(got.frame)
	switch {
	case got.verdict != pass || !ok:
		return fmt.Errorf("a datagram gets verdict %d", got.verdict)
	case !s.to.IsValid():
		s.to = dst
	case s.to != dst:
		return fmt.Errorf("a datagram of %s goes to %s, the first one went to %s", src, dst, s.to)
	}
	return nil
}

// confirm sends until the flow is confirmed, so that others do not push it out.
func (s *stream) confirm(t *testing.T, c cast) {
	t.Helper()
	must(t, s.send(c.rig))
	client, vip, _ := ends(s.frame)
	c.becomes(t, "the answer", out, uplink, c.packet(s.to, client, 0), c.packet(vip, client, 0))
	c.age(t, 3)
	must(t, s.send(c.rig))
}

// TestFlowsKeepTheirBackendBesideABusyCPU is about the clock: what one CPU notes as
// the time that a flow was last seen, another may not have reached yet.
func TestFlowsKeepTheirBackendBesideABusyCPU(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		vip := at(c.vip, 80)
		c.set(t, "web", c.frontend(lb.LoadBalancerIP, vip, at(c.local, 8080), at(c.local, 8081), at(c.local2, 8080), at(c.local2, 8081)))
		long, busy := c.stream(t, at(c.client, 1), vip), c.stream(t, at(c.other, 1), vip)
		long.confirm(t, c)
		busy.confirm(t, c)
		var done atomic.Bool
		must(t, <-onCPUs(t, func() error {
			defer done.Store(true)
			for i := range number(t, "HEADGATE_PACKETS", 400_000) / 4 {
				short := long.from(uint16(1024 + i%60_000))
				for _, s := range []*stream{&short, &long, &short, &long} {
					if err := s.send(r); err != nil {
						return err
					}
				}
			}
			return nil
		}, func() error {
			for !done.Load() {
				if err := busy.send(r); err != nil {
					return err
				}
			}
			return nil
		}))
	}}, cast{v4, r, lb.UDP})
}

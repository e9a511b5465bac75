package packets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// TestTheSumsOfTwoCPUsAreWhatWasSent is about atomics: both CPUs count for one socket, one backend and
// one Service port, 200,000 times each. Nothing is lost, and nothing counts twice.
func TestTheSumsOfTwoCPUsAreWhatWasSent(t *testing.T) {
	r := newRig(t)
	r.tell(t, story{tell: func(t *testing.T, c cast) {
		c.set(t, "web", c.hashed(lb.Random, at(c.remote, 8080)))
		i, err := datapath.Inspect(c.root)
		must(t, err)
		defer i.Close()
		p := c.overMaps(t, "testdata/sums.bpf.c", "add_sums")
		frame := countsFor(c.rig, i)
		const each = 200_000
		add := func() error { return addSums(p, frame, each) }
		must(t, <-onCPUs(t, add, add))
		must(t, addSums(p, frame, 1)) // of two looks at once one leaves its part to the next
		c.wantSums(t, i, 2*each+1)
	}}, cast{v4, r, lb.TCP})
}

// countsFor returns a frame for add_sums that names the only Service port and the only backend.
func countsFor(r *rig, i *datapath.Reader) []byte {
	frame := make([]byte, 64)
	for id := range r.told.Services {
		binary.NativeEndian.PutUint32(frame, id)
	}
	for id := range i.Backends() {
		binary.NativeEndian.PutUint32(frame[4:], id)
	}
	return frame
}

// addSums has the CPU of its caller count so many times.
func addSums(p *ebpf.Program, frame []byte, times uint32) error {
	verdict, err := p.Run(&ebpf.RunOptions{Data: frame, Repeat: times})
	if err == nil && verdict != xdpPass {
		err = errors.New("the Service port or the backend is not there")
	}
	return err
}

// wantSums compares what was counted for all Service ports and with all backends.
func (r *rig) wantSums(t *testing.T, i *datapath.Reader, times uint64) {
	t.Helper()
	want := fmt.Sprintf("%d bytes to, %d from, %d resets", 3*times, 7*times, times)
	text := func(of datapath.Traffic) string {
		return fmt.Sprintf("%d bytes to, %d from, %d resets", of.BytesTo, of.BytesFrom, of.Failed.Reset)
	}
	for id := range r.told.Services {
		s, err := i.Traffic(id)
		must(t, err)
		if got := text(s.Traffic); got != want {
			t.Errorf("the Service port has %s, want %s", got, want)
		}
		if n := s.ConnectTimes.Count(); n != times {
			t.Errorf("%d connect times, want %d", n, times)
		}
	}
	for _, b := range i.Backends() {
		if got := text(b.Traffic); got != want {
			t.Errorf("the backend has %s, want %s", got, want)
		}
	}
}

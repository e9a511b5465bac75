package network

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/tests/testenv"
)

// tracedAtDriver is a packet at a driver, as headgate trace shows it to programs.
type tracedAtDriver struct{ Where, Device, Verdict, From, Asked, Got, NowFrom, Service string }

// startTrace runs headgate trace on a node.
func (n *node) startTrace(t *testing.T, args ...string) (trace *exec.Cmd, said, complaints *testenv.LockedBuffer) {
	t.Helper()
	said, complaints = new(testenv.LockedBuffer), new(testenv.LockedBuffer)
	trace = exec.Command("/proc/self/exe", append([]string{"--bpf-root", n.root, "trace", "--state-dir", t.TempDir()}, args...)...)
	trace.Env, trace.Stdout, trace.Stderr = append(os.Environ(), asHeadgate+"=1"), said, complaints
	if err := n.Start(trace); err != nil {
		t.Fatal(err)
	}
	return trace, said, complaints
}

// traceDriver returns what headgate trace shows of the driver of a node in a while.
func (n *node) traceDriver(t *testing.T) (all []tracedAtDriver, complaints string) {
	t.Helper()
	trace, said, complained := n.startTrace(t, "--for", "2s", "-o", "json")
	if err := trace.Wait(); err != nil {
		t.Fatalf("headgate trace: %v: %s", err, complained.String())
	}
	for d := json.NewDecoder(strings.NewReader(said.String())); d.More(); {
		var one tracedAtDriver
		if err := d.Decode(&one); err != nil {
			t.Fatalf("%v in %s", err, said.String())
		}
		if one.Where == "driver" {
			all = append(all, one)
		}
	}
	return all, complained.String()
}

// told is how many packets the driver of a node has ever told of.
func (n *node) told(t *testing.T) (sum uint64) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.root, "maps", "driver_told"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var cpus [][]byte
	if err := m.Lookup(uint32(0), &cpus); err != nil {
		t.Fatal(err)
	}
	for _, b := range cpus {
		sum += binary.NativeEndian.Uint64(b[16:]) // the number of the last one
	}
	return sum
}

// wantNothingTold has drivers tell nothing while packets come.
func (n *node) wantNothingTold(t *testing.T, when string) {
	t.Helper()
	time.Sleep(1200 * time.Millisecond) // they are told for a second after the last look
	before, repeated := n.told(t), n.counter(t, "flow_repeated")
	time.Sleep(500 * time.Millisecond) // each 200 ms it may tell of some
	eventually(t, "packets are repeated", func() error {
		if now := n.counter(t, "flow_repeated"); now < repeated+100 {
			return fmt.Errorf("%d", now-repeated)
		}
		return nil
	})
	if after := n.told(t); after != before {
		t.Errorf("%s: the driver goes on to tell of packets", when)
	}
}

// TestDriversAreTraced traces a node whose driver repeats, in both directions, and while more is
// asked than can be shown. With whoever traces the driver stops to tell, killed or not.
func TestDriversAreTraced(t *testing.T) {
	n := newDrivenNetwork(t)
	n.startAgents()
	node := n.nodes[0]
	asked := node.at(families[0], onNode2)
	talks := &talks{end: make(chan struct{})}
	for range 8 {
		conn, err := n.client.dial("tcp", asked)
		if err != nil {
			t.Fatal(err)
		}
		talks.add(conn)
	}
	node.wantNothingTold(t, "before anybody looks")
	client := netip.MustParseAddr("198.51.100.7").String()
	all, complaints := node.traceDriver(t)
	to, from := 0, 0
	for _, one := range all {
		switch {
		case one.Device != "eth0" || one.Service == "" && one.Verdict != "passed":
			t.Errorf("%+v: want the device eth0, and the Service", one)
		case one.Verdict == "repeated" && one.Asked == asked.String()+"/TCP" && strings.HasPrefix(one.From, client) && one.Got != "" && one.NowFrom != one.From:
			to++
		case one.Verdict == "repeated" && one.NowFrom == asked.String() && strings.HasPrefix(one.Got, client):
			from++
		case one.Verdict != "passed":
			t.Errorf("what is %+v?", one)
		}
	}
	if to == 0 || from == 0 || !strings.Contains(complaints, "packets at drivers are not shown") {
		t.Errorf("of %d packets %d are to a backend and %d from one, and it is said: %q", len(all), to, from, complaints)
	}
	node.wantNothingTold(t, "after a trace")
	trace, said, _ := node.startTrace(t)
	eventually(t, "packets are traced", func() error {
		if !strings.Contains(said.String(), " repeated from ") {
			return fmt.Errorf("%q", said.String())
		}
		return nil
	})
	if err := trace.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = trace.Wait()
	node.wantNothingTold(t, "after a trace was killed")
	for _, err := range talks.stop() {
		t.Error(err)
	}
}

// TestWhatDriversCarryIsTraced traces a node whose driver carries.
func TestWhatDriversCarryIsTraced(t *testing.T) {
	f := newFabricOver(t, "dsr", underlay{mtu: 1500, xdp: true})
	f.startCarrying(t, 1)
	talks := &talks{end: make(chan struct{})}
	talks.add(f.begin(1, 0)[0])
	carried := 0
	all, _ := f.nodes[0].traceDriver(t)
	for _, one := range all {
		switch {
		case one.Verdict == "carried" && one.NowFrom == f.nodes[0].addr.String() && one.Got == f.nodes[1].addr.String() && one.Service == "default/web:tcp/TCP":
			carried++
		case one.Verdict != "passed":
			t.Errorf("what is %+v?", one)
		}
	}
	if carried == 0 {
		t.Errorf("of %d packets none was carried: %+v", len(all), all)
	}
	for _, err := range talks.stop() {
		t.Error(err)
	}
}

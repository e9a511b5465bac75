package network

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// byDrivers are flags of agents that have drivers repeat.
var byDrivers = []string{"--xdp", "eth*"}

// newDrivenNetwork makes a network whose nodes have their drivers repeat what was done to
// packets before.
func newDrivenNetwork(t *testing.T) *network {
	n := newNetwork(t, false)
	n.takeDriven()
	for _, node := range n.nodes {
		node.serve()
		node.options = slices.Clone(byDrivers)
	}
	return n
}

// takeDriven has the network take what drivers of nodes send. Between namespaces, programs at
// drivers see packets of the stack, whose checksums would be left to a device that there is not.
func (n *network) takeDriven() {
	n.tb.Helper()
	n.client.sumHere("eth0")
	for i, node := range n.nodes {
		for _, device := range []string{"eth0", "pod0", "pod1"} {
			node.sumHere(device)
		}
		node.pod.sumHere("eth0")
		node.guest.sumHere("eth0")
		if i == 0 {
			n.router.takesXDP(node.name)
		} else {
			n.router.ethtool(node.name, unix.ETHTOOL_SGRO, 1) // takes them as well
		}
		n.router.sumHere(node.name) // what was put together is cut again
	}
}

// TestRepeatedFlows takes the paths of TestRedirectedFlows with the drivers of the nodes, and
// counts that these had their part.
func TestRepeatedFlows(t *testing.T) {
	n := newDrivenNetwork(t)
	n.startAgents()
	for _, c := range []struct {
		name string
		test func(*testing.T, *network)
	}{
		{"NodePorts", nodePorts}, {"load-balancer IPs", virtualIPs}, {"policy Local", policyLocal}, {"refusals", refusals},
		{"transfers", transfers}, {"fragments", fragments}, {"a packet whose time is up", timeExceeded},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, n) })
	}
	for _, node := range n.nodes {
		if node.counter(t, "flow_repeated") == 0 {
			t.Errorf("the driver of %s repeated nothing", node.name)
		}
		for _, h := range node.status(t).Devices[0].Hooks {
			if h.Name == "uplink" && h.By != "native XDP" {
				t.Errorf("uplink is attached to %s by %q", node.name, h.By)
			}
		}
	}
}

// TestNothingIsLostWhileTheDriverChanges asks through a node all the while its agent dies, starts
// again, and replaces all programs and maps.
func TestNothingIsLostWhileTheDriverChanges(t *testing.T) {
	n := newDrivenNetwork(t)
	n.startAgents()
	node := n.nodes[0]
	talks := &talks{end: make(chan struct{})}
	for _, f := range families {
		for _, protocol := range []string{"tcp", "udp"} {
			conn, err := n.client.dial(protocol, node.at(f, onNode2))
			if err != nil {
				t.Fatal(err)
			}
			talks.add(conn)
		}
	}
	node.awaitRepeats(t, "with an agent")
	node.stop()
	node.awaitRepeats(t, "without one")
	node.startAgent(n.manifests)
	node.awaitRepeats(t, "with the next one")
	node.stop()
	node.options = append(node.options, "--flows", "20000") // other maps, so other programs
	node.startAgent(n.manifests)
	node.awaitRepeats(t, "by other programs")
	for _, err := range talks.stop() {
		t.Error(err)
	}
	t.Logf("%d questions were answered", talks.answered)
}

// awaitRepeats waits until the driver of a node repeats.
func (n *node) awaitRepeats(t *testing.T, when string) {
	t.Helper()
	before := n.counter(t, "flow_repeated")
	eventually(t, "the driver repeats "+when, func() error {
		if now := n.counter(t, "flow_repeated"); now < before+100 {
			return fmt.Errorf("%d packets", now-before)
		}
		return nil
	})
}

// talks are questions that are asked one after the other, on several connections.
type talks struct {
	end  chan struct{}
	wait sync.WaitGroup

	mu       sync.Mutex
	answered int
	failed   []error
}

func (a *talks) add(conn net.Conn) { a.wait.Go(func() { a.ask(conn) }) }

// addOn has one asked on a CPU.
func (a *talks) addOn(cpu int, conn net.Conn) {
	a.wait.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the talk
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			a.note(fmt.Errorf("stay on CPU %d: %w", cpu, err))
		}
		a.ask(conn)
	})
}

// ask asks until the end, the same pod all the while.
func (a *talks) ask(conn net.Conn) {
	defer conn.Close()
	for first := ""; ; {
		select {
		case <-a.end:
			return
		default:
		}
		got, err := askOnce(conn)
		if first == "" {
			first = got
		}
		if err != nil || !strings.HasPrefix(got, "pod-") || !sameServer(got, first) {
			err = fmt.Errorf("%s %s: an answer is %q, the first was %q, %w", conn.RemoteAddr().Network(), conn.RemoteAddr(), got, first, err)
		}
		if a.note(err); err != nil {
			return
		}
	}
}

// sameServer says whether answers are of the same server, whatever they end with.
func sameServer(a, b string) bool {
	name, _, _ := strings.Cut(a, " ")
	return strings.HasPrefix(b, name+" ")
}

// note notes an answer, or that there was none.
func (a *talks) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answered++; err != nil {
		a.failed = append(a.failed, err)
	}
}

// askOnce asks, and waits for the answer: what is lost is not asked again.
func askOnce(conn net.Conn) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write([]byte("who\n")); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := conn.Read(b)
	return string(b[:n]), err
}

func (a *talks) stop() []error {
	close(a.end)
	a.wait.Wait()
	return a.failed
}

// TestAnotherProgramHasTheDriver starts an agent where the driver is taken: TC does all, and it
// is said who is there.
func TestAnotherProgramHasTheDriver(t *testing.T) {
	n := newDrivenNetwork(t)
	node := n.nodes[0]
	other := node.takesXDP("eth0")
	var log lockedBuffer
	node.log, node.options = &log, append(node.options, "--log-level", "info")
	n.startAgents()
	eventually(t, "the log names the other program", func() error {
		if text := log.String(); !strings.Contains(text, "another XDP program is there, firewall") {
			return errors.New(text)
		}
		return nil
	})
	nodePorts(t, n)
	if node.counter(t, "flow_repeated") > 0 {
		t.Error("the driver has another program, and repeats")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the driver is free and is taken", func() error {
		for _, h := range node.status(t).Devices[0].Hooks {
			if h.Name == "uplink" && h.Attached {
				return nil
			}
		}
		return errors.New("it is not")
	})
	transfers(t, n)
	if node.counter(t, "flow_repeated") == 0 {
		t.Error("nothing is repeated")
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestAnotherProgramCallsOurs has a program of others at the driver that calls uplink by a tail
// call: packets are repeated all the same.
func TestAnotherProgramCallsOurs(t *testing.T) {
	n := newDrivenNetwork(t)
	node := n.nodes[0]
	called := node.dispatch("eth0")
	n.startAgents()
	p, err := ebpf.LoadPinnedProgram(filepath.Join(node.root, "maps", "uplink"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := called.Put(uint32(0), p); err != nil {
		t.Fatal(err)
	}
	transfers(t, n)
	if node.counter(t, "flow_repeated") == 0 {
		t.Error("nothing is repeated")
	}
}

// dispatch attaches a program to the driver of a device that calls what is in the map that is
// returned.
func (h *host) dispatch(device string) *ebpf.Map {
	h.tb.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "called", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		h.tb.Fatal(err)
	}
	h.tb.Cleanup(func() { m.Close() })
	h.attachXDP(device, &ebpf.ProgramSpec{Name: "dispatcher", Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL", Flags: unix.BPF_F_XDP_HAS_FRAGS, Instructions: asm.Instructions{
		asm.LoadMapPtr(asm.R2, m.FD()), asm.Mov.Imm(asm.R3, 0), asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, xdpPass), asm.Return(),
	}})
	return m
}

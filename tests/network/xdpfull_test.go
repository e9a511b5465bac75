package network

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// TestAFullTableOutlivesAgentsByDrivers has clients on two CPUs ask by flows that drivers repeat, others that are open and
// silent, and a table that is full of what strangers sent. Agents are killed and come again, some with tables of another
// size: nothing is lost, and each flow stays with its pod.
func TestAFullTableOutlivesAgentsByDrivers(t *testing.T) {
	if os.Getenv("HEADGATE_UNSTABLE") == "" {
		t.Skip("a datagram over IPv6 gets no answer in one of five runs, and the cause is not known: HEADGATE_UNSTABLE=1")
	}
	const entries, silent = 1 << 12, 200
	n := newDrivenNetwork(t)
	node := n.nodes[0]
	driven := node.options
	node.options = append(driven, "--flows", strconv.Itoa(entries))
	n.startAgents()
	idle, said := n.openSilent(t, silent)
	n.fill(t, entries)
	talks := &talks{end: make(chan struct{})}
	cpus := min(runtime.NumCPU(), 2)
	for i, protocol := range []string{"tcp", "udp", "tcp", "udp", "tcp", "udp", "tcp", "udp"} {
		for _, f := range families {
			conn, err := n.client.dial(protocol, node.at(f, onBoth))
			if err != nil {
				t.Fatal(err)
			}
			talks.addOn(i/2%cpus, conn)
		}
	}
	for _, flows := range []int{entries, 2 * entries, 2 * entries, entries} {
		node.awaitRepeats(t, "with an agent")
		node.stop()
		node.awaitRepeats(t, "without one")
		node.options = append(driven, "--flows", strconv.Itoa(flows))
		node.startAgent(n.manifests)
		node.awaitFlowTable(t, flows)
		node.awaitRepeats(t, "with the next one")
		n.wantAnswers(t, idle, said)
	}
	for _, err := range talks.stop() {
		t.Error(err)
	}
	for cpu, repeated := range node.repeatedOn(t)[:cpus] {
		if repeated == 0 {
			t.Errorf("CPU %d has repeated nothing", cpu)
		}
	}
	t.Logf("%d questions were answered", talks.answered)
}

// openSilent opens so many connections to both pods by the first node, and returns who answers each.
func (n *network) openSilent(t *testing.T, count int) (conns []net.Conn, said []string) {
	t.Helper()
	for range count {
		conn, err := n.client.dial("tcp", n.nodes[0].at(0, onBoth))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		conns = append(conns, conn)
	}
	return conns, n.wantAnswers(t, conns, nil)
}

// fill has strangers send SYNs to the first node until its table of so many entries has been full for long.
func (n *network) fill(t *testing.T, entries uint64) {
	t.Helper()
	f := &flood{pace: 5_000, to: []netip.AddrPort{n.nodes[0].at(0, onBoth)}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	device := n.packetDevice(t)
	go func() { done <- f.run(ctx, device) }()
	eventually(t, "flows make room for others", func() error {
		if got := n.nodes[0].counter(t, "flow_expired"); got < entries {
			return fmt.Errorf("%d have", got)
		}
		return nil
	})
	stop()
	if err := <-done; err != nil {
		t.Fatalf("flood: %v", err)
	}
}

// awaitFlowTable waits until a node has a table for so many flows, and hooks that are attached.
func (n *node) awaitFlowTable(t *testing.T, flows int) {
	t.Helper()
	eventually(t, fmt.Sprintf("there is a table for %d flows", flows), func() error {
		m, err := ebpf.LoadPinnedMap(filepath.Join(n.root, "maps", "flow_table"), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer m.Close()
		if ways := int(m.MaxEntries()) * 7; ways < flows || ways >= 2*flows {
			return fmt.Errorf("it has %d ways", ways)
		}
		return nil
	})
	n.awaitBalance(1)
}

// repeatedOn returns how many packets the driver of a node has repeated on each CPU.
func (n *node) repeatedOn(t *testing.T) (all []uint64) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.root, "maps", "counters"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h, err := m.Handle()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	types, err := h.Spec(nil)
	if err != nil {
		t.Fatal(err)
	}
	var counters *btf.Struct
	if err := types.TypeByName("counters", &counters); err != nil {
		t.Fatal(err)
	}
	var cpus [][]byte
	if err := m.Lookup(uint32(0), &cpus); err != nil {
		t.Fatal(err)
	}
	for _, member := range counters.Members {
		for _, b := range cpus {
			if member.Name == "flow_repeated" {
				all = append(all, binary.NativeEndian.Uint64(b[member.Offset.Bytes():]))
			}
		}
	}
	return all
}

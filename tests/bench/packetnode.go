package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// packetNode is a datapath with one Service and room for so many flows, and
// the program that replays packets for it.
type packetNode struct {
	cfg      datapath.Config
	programs map[string]*ebpf.Program
	replay   *replayObjects
	table    *ebpf.Map
	known    map[lb.Protocol]int // flows that are established

	// Of a node whose backends are on others.
	uplink            plan.Device     // by which they are reached
	frontend, backend netip.AddrPort  // the first of several
	express           *expressEntries // nil: there are none
	ways              *knownWays      // the same
	outer             []byte          // header before what a peer carries here; nil: none does
}

// packetNode brings a Service with one backend into the kernel.
func (b *bench) packetNode(name string, object []byte, ways uint32) (*packetNode, error) {
	return b.packetNodeOf(name, object, func(c *datapath.Config) { c.Flows = ways })
}

// packetNodeOf does so with a configuration that is changed.
func (b *bench) packetNodeOf(name string, object []byte, change func(*datapath.Config)) (*packetNode, error) {
	g, err := b.newGroup(name)
	if err != nil {
		return nil, err
	}
	g.root = filepath.Join(b.bpffs, name)
	cfg := g.config(object)
	change(&cfg)
	if err := fillWith(cfg, tcp4, 1, 1); err != nil {
		return nil, err
	}
	n, err := newPacketNode(cfg)
	if err != nil {
		return nil, err
	}
	if err := n.open(g.root, "device_in", "device_out"); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// newPacketNode loads the program that replays packets for a node.
func newPacketNode(cfg datapath.Config) (*packetNode, error) {
	n := &packetNode{cfg: cfg, programs: map[string]*ebpf.Program{}, replay: &replayObjects{}, known: map[lb.Protocol]int{}}
	if err := loadReplayObjects(n.replay, nil); err != nil {
		return nil, fmt.Errorf("load the program that replays packets: %w", err)
	}
	n.programs[""], n.programs["make_room"], n.programs["find_hop"] = n.replay.Nothing, n.replay.MakeRoom, n.replay.FindHop
	return n, nil
}

// open opens the table and programs of its datapath.
func (n *packetNode) open(root string, programs ...string) (err error) {
	if n.table, err = ebpf.LoadPinnedMap(filepath.Join(root, "maps", "flow_table"), nil); err != nil {
		return err
	}
	for _, program := range programs {
		if n.programs[program], err = ebpf.LoadPinnedProgram(filepath.Join(root, "maps", program), nil); err != nil {
			return err
		}
	}
	return nil
}

func (n *packetNode) close() {
	for _, p := range n.programs {
		p.Close()
	}
	if n.table != nil {
		n.table.Close()
	}
	n.replay.Close()
	n.express.close()
	n.ways.close()
}

// establish takes flows through a handshake, some at a time.
func (n *packetNode) establish(b *bench, flows int, frontend, backend netip.AddrPort) error {
	if err := b.step("establish %s flows", count(flows)); err != nil {
		return err
	}
	const some = 1 << 14
	for begin := 0; begin < flows; begin += some {
		for _, c := range []packetCase{
			{program: "device_in", peer: frontend, flags: syn},
			{program: "device_out", peer: backend, flags: syn | ack, fromPeer: true},
			{program: "device_in", peer: frontend, flags: ack},
		} {
			c.node, c.flows, c.protocol, c.sent = n, flows, lb.TCP, uint32(begin)
			if err := c.measure(min(some, flows-begin)); err != nil {
				return err
			}
		}
	}
	return n.check(frontend, backend)
}

// check makes sure that a packet of a flow gets the address of the backend:
// otherwise it is not later packets that are measured.
func (n *packetNode) check(frontend, backend netip.AddrPort) error {
	c := packetCase{program: "device_in", node: n, protocol: lb.TCP, peer: frontend, flows: 1, flags: ack}
	if err := c.ready(); err != nil {
		return err
	}
	_, out, err := n.replay.Replay.Test(c.frame)
	if err != nil {
		return err
	}
	if want := backend.Addr().AsSlice(); len(out) < 34 || !bytes.Equal(out[30:34], want) {
		return fmt.Errorf("a packet of an established flow to %s does not go to %s", frontend, backend)
	}
	return nil
}

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
)

// clientNet4 is where the clients of packets live.
var clientNet4 = netip.MustParseAddr("198.18.0.0")

// allFlows is more than are ever there: each packet is of another flow, for a long time.
const allFlows = 1 << 24

// TCP flags.
const (
	syn = 0x02
	ack = 0x10
)

// A packetCase is a packet that a program sees again and again, each time of
// another flow.
type packetCase struct {
	name, key string
	flows     int // a power of two
	node      *packetNode
	program   string // of the node; "" is the one that does nothing
	flags     byte
	protocol  lb.Protocol
	peer      netip.AddrPort
	peers     int // from this one on, a power of two; 0 is 1
	fromPeer  bool
	fresh     *freshFlows // every packet is of a flow that never was
	base      *packetCase // what the replay itself costs; nil: it is this one
	routed    bool        // of flows to backends on other nodes
	atDriver  bool
	carried   bool // the program puts an outer header before it
	decided   bool // nothing is repeated: entries are as old as after a second

	frame    []byte
	sent     uint32
	repeated uint64 // of those that a driver saw
	ns       []float64
}

// freshFlows is a flow table in which flows begin. It is emptied before each round,
// unless it is to run full.
type freshFlows struct {
	table  *ebpf.Map
	filled int // flows that are there before it is measured
	runs   int
	full   bool
}

// packets measures what a packet costs at a device, flow by flow.
func (b *bench) packets() error {
	leave, err := stayOnOneCPU()
	if err != nil {
		return err
	}
	defer leave()
	cases, closeAll, err := b.packetCases("", nil)
	defer closeAll()
	if err != nil {
		return err
	}
	for round := range b.plan.rounds {
		b.progress(fmt.Sprintf("round %d of %d", round+1, b.plan.rounds))
		for _, c := range cases {
			if err := errors.Join(b.ctx.Err(), c.round(b.plan.packets)); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	t := table{
		Title:  "A packet at a device: run time of the program, TCP over IPv4, ns",
		Header: []string{"packet", "flows", "net", "quartiles", "least"},
		Note: "By BPF_PROG_TEST_RUN. Before each run a small program writes the addresses and ports of another flow into the packet, in no order, and calls the one that is measured; " +
			"what that costs with a program that does nothing is taken off, round by round. The cache of the CPU holds the flows up to some number, and the program always: on a busy node it may not.",
	}
	for _, c := range cases {
		if c.base != nil && !c.routed {
			t.row(append([]string{c.name}, b.packetFigures(c)...)...)
		}
	}
	b.report.table(t)
	b.reportDriver(cases)
	return b.recounts(cases)
}

// packetFigures adds what a packet costs to the report, and returns the cells of its row.
func (b *bench) packetFigures(c *packetCase) []string {
	s := added(c.ns, c.base.ns)
	s.Least = slices.Min(c.ns) - slices.Min(c.base.ns)
	b.report.add("packets/"+c.key, "ns", s)
	flows := count(c.flows)
	if c.fresh != nil || c.flows == allFlows {
		flows = "new"
	}
	return []string{flows, ns(s), spread(s), us(s.Least)}
}

// packetCases brings datapaths of an object into the kernel, with flows that are
// established, and returns the packets to measure. The name sets them apart from those of
// other objects.
func (b *bench) packetCases(name string, object []byte) (cases []*packetCase, closeAll func(), err error) {
	cases, closeHere, err := b.packetsHere(name, object)
	if err != nil {
		return nil, closeHere, err
	}
	routed, closeRouted, err := b.routedPackets(name, object)
	if err != nil {
		return nil, func() { closeRouted(); closeHere() }, err
	}
	carried, closeCarried, err := b.carriedPackets(name, object)
	return slices.Concat(cases, routed, carried), func() { closeCarried(); closeRouted(); closeHere() }, err
}

// packetsHere are those of flows to a backend on this node; the first one meets no program.
func (b *bench) packetsHere(name string, object []byte) (cases []*packetCase, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	usual, err := b.packetNode("packets"+name, object, 1<<18)
	if err != nil {
		return nil, closeAll, err
	}
	closers = append(closers, usual.close)
	frontend := netip.AddrPortFrom(nth(serviceNet4, 1), servicePort)
	backend := netip.AddrPortFrom(nth(backendNet4, 1), backendPort)
	foreign := netip.AddrPortFrom(nth(foreignNet4, 1), servicePort)
	add := func(c packetCase) {
		c.protocol = lb.TCP
		if len(cases) > 0 {
			c.base = cases[0]
		}
		cases = append(cases, &c)
	}
	add(packetCase{name: "no program", flows: 1, node: usual, peer: foreign, flags: ack})
	add(packetCase{name: "in, for no Service", key: "foreign_in", flows: 1024, node: usual, program: "device_in", peer: foreign, flags: ack})
	add(packetCase{name: "in, for no Service, SYN", key: "foreign_syn_in", flows: 1024, node: usual, program: "device_in", peer: foreign, flags: syn})
	add(packetCase{name: "out, of no Service", key: "foreign_out", flows: 1024, node: usual, program: "device_out", peer: foreign, flags: ack, fromPeer: true})
	for _, flows := range b.plan.flows {
		node := usual
		if flows > 1<<16 {
			if node, err = b.packetNode("packets-many"+name, object, uint32(flows)*5/2); err != nil {
				return nil, closeAll, err
			}
			closers = append(closers, node.close)
		}
		if err := node.establish(b, flows, frontend, backend); err != nil {
			return nil, closeAll, err
		}
		key := fmt.Sprint(flows)
		add(packetCase{name: "in, later of a flow", key: "later_in/" + key, flows: flows, node: node, program: "device_in", peer: frontend, flags: ack})
		add(packetCase{name: "out, answer of a flow", key: "later_out/" + key, flows: flows, node: node, program: "device_out", peer: backend, flags: ack, fromPeer: true})
	}
	for _, f := range []struct {
		name, key string
		ways      uint32
		fill      float64
		full      bool
	}{
		{"in, first of a flow, table in the cache", "new/cached", 1 << 13, 0, false},
		{"in, first of a flow, table half full", "new/half_full", 1 << 18, 0.5, false},
		{"in, first of a flow, table full of half-open ones", "new/full", 1 << 18, 1, true},
	} {
		node, err := b.packetNode("packets-"+path.Base(f.key)+name, object, f.ways)
		if err != nil {
			return nil, closeAll, err
		}
		closers = append(closers, node.close)
		fresh := freshFlows{table: node.table, filled: int(f.fill * float64(f.ways) / 2), runs: min(b.plan.packets, int(f.ways)/8), full: f.full}
		add(packetCase{name: f.name, key: f.key, flows: allFlows, fresh: &fresh, node: node, program: "device_in", peer: frontend, flags: syn})
	}
	return cases, closeAll, nil
}

// round measures a case once more: so many packets, or as many flows as begin in its table.
func (c *packetCase) round(packets int) error {
	if c.fresh == nil {
		return c.measure(packets)
	}
	if err := c.fresh.prepare(c); err != nil {
		return err
	}
	return c.measure(c.fresh.runs)
}

// prepare empties the table and fills it as it is to be; one that is to run full does so
// in the first round.
func (f *freshFlows) prepare(c *packetCase) error {
	if f.full && len(c.ns) > 0 {
		return nil
	}
	empty := make([]byte, f.table.ValueSize())
	for set := range f.table.MaxEntries() {
		if err := f.table.Put(set, empty); err != nil {
			return fmt.Errorf("empty the flow table: %w", err)
		}
	}
	if f.filled == 0 {
		return nil
	}
	filling := *c
	err := filling.measure(f.filled)
	c.sent = filling.sent
	return err
}

// measure runs the program so many times and notes the mean of a run.
func (c *packetCase) measure(runs int) error {
	if err := c.ready(); err != nil {
		return err
	}
	before, err := c.node.express.sent()
	if err != nil {
		return err
	}
	took, err := c.run(runs)
	if err != nil {
		return err
	}
	after, err := c.node.express.sent()
	c.repeated += after - before
	c.sent += uint32(runs)
	c.ns = append(c.ns, took)
	return err
}

// run runs the program so many times, and returns the mean of a run in ns.
func (c *packetCase) run(runs int) (ns float64, err error) {
	replay, most := c.node.replay.Replay, runs
	switch {
	case c.atDriver:
		replay = c.node.replay.DriverReplay
	case c.carried || c.isCovered():
		most = outerRuns
	}
	for left := runs; left > 0; left -= most {
		some := min(left, most)
		_, took, err := replay.Benchmark(c.frame, some, nil)
		if err != nil {
			return 0, err
		}
		ns += float64(took.Nanoseconds()) * float64(some) / float64(runs)
	}
	return ns, nil
}

// ready tells the program that replays packets which ones.
func (c *packetCase) ready() error {
	r := c.node.replay
	if c.frame == nil {
		c.frame = c.withOuter(c.template())
	}
	target, program := r.Target, c.node.programs[c.program]
	if c.atDriver {
		target = r.DriverTarget
	}
	if c.atDriver && c.program == "" {
		program = r.DriverNothing
	}
	if err := target.Put(uint32(0), program); err != nil {
		return err
	}
	if c.node.express != nil {
		c.node.express.renew(c.decided)
	}
	if err := c.node.ways.renew(); err != nil {
		return err
	}
	peer := c.peer.Addr().As4()
	from := uint16(0)
	if c.fromPeer {
		from = 1
	}
	client := clientNet4.As4()
	return errors.Join(
		c.readyOuter(),
		r.Next.Set(c.sent), r.FlowMask.Set(uint32(c.flows-1)), r.Client.Set(binary.BigEndian.Uint32(client[:])),
		r.Peer.Set(binary.BigEndian.Uint32(peer[:])), r.PeerMask.Set(uint32(max(1, c.peers)-1)), r.PeerPort.Set([2]byte{byte(c.peer.Port() >> 8), byte(c.peer.Port())}), r.FromPeer.Set(from),
	)
}

// template is the packet, but for whom it is between.
func (c *packetCase) template() []byte {
	b := make([]byte, 14+20+20)
	b[12], b[14], b[22], b[23] = 0x08, 0x45, 64, byte(c.protocol)
	binary.BigEndian.PutUint16(b[16:], 40)
	seq, acked := uint32(1001), uint32(5001)
	switch {
	case c.fromPeer:
		seq, acked = 5000, 1001
	case c.flags == syn:
		seq = 1000
	}
	binary.BigEndian.PutUint32(b[38:], seq)
	binary.BigEndian.PutUint32(b[42:], acked)
	b[46], b[47] = 5<<4, c.flags
	return b
}

// packetAims compares what a packet costs at a device with what was asked for.
func (r *report) packetAims(t *table) {
	for _, c := range []struct{ name, key string }{{"in, for no Service", "foreign_in"}, {"out, of no Service", "foreign_out"}} {
		r.aim(t, "a packet "+c.name, "packets/"+c.key, 8, "%.0f ns")
	}
	aims := map[int]float64{1: 45, 1 << 10: 60, 1 << 16: 200, 1 << 20: 300}
	for _, flows := range r.plan.flows {
		if aims[flows] == 0 {
			continue // of a quick run
		}
		for _, c := range []struct{ name, key string }{{"in, later of a flow", "later_in"}, {"out, answer of a flow", "later_out"}} {
			r.aim(t, "a packet "+c.name+", of "+count(flows), fmt.Sprintf("packets/%s/%d", c.key, flows), aims[flows], "%.0f ns")
		}
	}
	r.driverAims(t)
	r.aim(t, "the first packet of a flow, table in the cache", "packets/new/cached", 300, "%.0f ns")
	r.aim(t, "the same, table half full", "packets/new/half_full", 650, "%.0f ns")
}

package packets

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == makeCalls {
		_ = datapath.MakeCalls(os.Stdin, os.Stdout) // who reads it says what is missing
		os.Exit(0)
	}
	os.Exit(testenv.Main(m))
}

// makeCalls has this program be the caller of a datapath.SocketReplay.
const makeCalls = "make-calls"

// hook is one of the programs of devices.
type hook string

const (
	in     hook = "device_in"
	out    hook = "device_out"
	podIn  hook = "pod_in"
	podOut hook = "pod_out"
)

// The devices of the node of every test, by name.
const (
	uplink = "hg-up"
	tunnel = "hg-tun"
	podEnd = "hg-pod"
)

// Verdicts, as of linux/pkt_cls.h.
const (
	pass = 1<<32 - 1 // TC_ACT_UNSPEC: on to the next program
	drop = 2
)

// rig is the datapath in the kernel, with what it was told.
type rig struct {
	root     string
	cfg      datapath.Config
	dp       *datapath.Datapath
	planner  *plan.Planner
	told     plan.Model
	known    map[netip.Addr]bool // addresses that frontends and nodes have or had
	answers  map[end]bool        // where frontends answer or did
	devices  map[string]plan.Device
	programs map[hook]*ebpf.Program
	tables   map[string]*ebpf.Map // those that programs write
	table    flowTable
	counted  map[string]uint64
	toldAt   map[string]uint64 // refused packets, by hook and device
	sums     bool              // the kernel knows sumUp
	compared int               // frames
	driver   *comparison       // with what the driver does; nil: with nothing
	cameBy   string            // device by which packets that leave have come; "": none
}

// newRig loads the datapath, with three devices and the addresses of a node.
func newRig(tb testing.TB) *rig {
	tb.Helper()
	return newRigOf(tb, func(*datapath.Config) {})
}

// newRigOf does so with a configuration that is changed.
func newRigOf(tb testing.TB, change func(*datapath.Config)) *rig {
	tb.Helper()
	return newNode(tb, node{cgroup: testenv.Cgroup(tb), ip4: v4.node, ip6: v6.node}, change)
}

// node is one of several that are on one machine.
type node struct {
	cgroup   string
	suffix   string     // of the names of its devices
	ip4, ip6 netip.Addr // of its uplink
}

// newNode loads the datapath of a node.
func newNode(tb testing.TB, n node, change func(*datapath.Config)) *rig {
	tb.Helper()
	r := &rig{
		root: testenv.BPFRoot(tb), planner: plan.New(plan.Sizes{}),
		known:   map[netip.Addr]bool{},
		answers: map[end]bool{},
		devices: map[string]plan.Device{}, programs: map[hook]*ebpf.Program{}, tables: map[string]*ebpf.Map{},
	}
	r.cfg = datapath.Config{Root: r.root, Cgroup: n.cgroup, Node: "node", Version: "test", Sizes: datapath.DefaultSizes, SocketEntries: 64, Flows: 1 << 15, Traffic: true}
	change(&r.cfg)
	dp, err := datapath.Open(r.cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r.dp = dp
	tb.Cleanup(dp.Close)
	if err := dp.Attach(); err != nil {
		tb.Fatal(err)
	}
	r.addDevices(tb, n)
	r.open(tb)
	_, err = r.programs[in].Run(&ebpf.RunOptions{Data: make([]byte, 64), Flags: sumUp})
	r.sums = err == nil
	r.counted = r.counters(tb)
	return r
}

// open opens the programs and tables that are pinned now.
func (r *rig) open(tb testing.TB) {
	tb.Helper()
	var err error
	for _, h := range []hook{in, out, podIn, podOut} {
		if r.programs[h], err = ebpf.LoadPinnedProgram(filepath.Join(r.root, "maps", string(h)), nil); err != nil {
			tb.Fatal(err)
		}
		program := r.programs[h]
		tb.Cleanup(func() { program.Close() })
	}
	for _, name := range []string{"fragments", "fragment_queue", "affinities", "slot_changes", "flow_filter"} {
		if r.tables[name], err = ebpf.LoadPinnedMap(filepath.Join(r.root, "maps", name), nil); err != nil {
			tb.Fatal(err)
		}
		table := r.tables[name]
		tb.Cleanup(func() { table.Close() })
	}
	r.openFlows(tb)
}

// addDevices makes the devices and tells the datapath their addresses.
func (r *rig) addDevices(tb testing.TB, n node) {
	tb.Helper()
	var list []plan.Device
	node := map[netip.Addr]plan.AddressKind{
		netip.MustParseAddr("127.0.0.1"): plan.LoopbackAddress, netip.IPv6Loopback(): plan.LoopbackAddress,
	}
	for _, d := range []plan.Device{
		{Name: uplink, IP4: n.ip4, IP6: n.ip6},
		{Name: tunnel, IP4: v4.tunnel, IP6: v6.tunnel},
		{Name: podEnd, IP4: v4.tunnel, IP6: v6.tunnel, Pod: true},
	} {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: d.Name + n.suffix}, PeerName: d.Name + n.suffix + "-peer"}
		if err := netlink.LinkAdd(l); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = netlink.LinkDel(l) })
		d.Index = uint32(l.Index)
		r.devices[d.Name] = d
		list = append(list, d)
		node[d.IP4], node[d.IP6] = plan.NodeAddress, plan.NodeAddress
	}
	if err := r.dp.SetDevices(list); err != nil {
		tb.Fatal(err)
	}
	r.apply(tb, r.planner.SetNodeAddresses(node))
}

func (r *rig) apply(tb testing.TB, ops []plan.Op) {
	tb.Helper()
	if _, err := r.dp.Apply(ops); err != nil {
		tb.Fatal(err)
	}
	for _, op := range ops {
		r.told.Apply(op)
	}
	for a := range r.told.Addresses {
		r.known[a] = true
	}
	r.noteAnswers()
}

// noteAnswers notes at which ends of the node frontends answer.
func (r *rig) noteAnswers() {
	for at, f := range r.told.Frontends {
		if f.Kind == lb.LoadBalancerIP || f.Kind == lb.ExternalIP {
			r.answers[end{at.Addr, at.Port >> 14}] = true
		}
		for a, kind := range r.told.Addresses {
			if at.Addr == unspecified(a) && kind&plan.NodeAddress != 0 {
				r.answers[end{a, at.Port >> 14}] = true
			}
		}
	}
}

// set gives a Service its frontends, through the planner.
func (r *rig) set(tb testing.TB, name string, frontends ...lb.Frontend) {
	tb.Helper()
	ops, err := r.planner.Set(lb.ServiceName{Namespace: "test", Name: name}, frontends)
	if err != nil {
		tb.Fatal(err)
	}
	r.apply(tb, ops)
}

// setCIDRs says which prefixes belong to Services.
func (r *rig) setCIDRs(tb testing.TB, prefixes ...netip.Prefix) {
	tb.Helper()
	ops, err := r.planner.SetServiceCIDRs(prefixes)
	if err != nil {
		tb.Fatal(err)
	}
	r.apply(tb, ops)
}

// run gives a frame to a program. What the program made of it comes back.
func (r *rig) run(tb testing.TB, h hook, device string, frame []byte) (verdict uint32, made []byte) {
	tb.Helper()
	sent := r.driver.before(tb, r, h, device, frame)
	got, err := r.try(h, device, frame)
	if err != nil {
		tb.Fatalf("run %s with %d bytes: %v", h, len(frame), err)
	}
	r.driver.after(tb, frame, sent, got)
	return got.verdict, got.frame
}

// try does so with a frame that the kernel may not take, since it is shorter
// than its IP header.
func (r *rig) try(h hook, device string, frame []byte) (result, error) {
	return r.tryAs(h, device, frame, 0)
}

// sumUp has the kernel sum up a packet before the program, as a device does that says
// CHECKSUM_COMPLETE, and compare afterwards. Linux 6.16.
const sumUp = 1 << 2

// tryAs does so with flags of a test run.
func (r *rig) tryAs(h hook, device string, frame []byte, flags uint32) (result, error) {
	const waiting = 2048 // a first fragment lets go of longer ones, the last of which comes back
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+waiting), Context: r.contextOf(h, device), Flags: flags}
	verdict, err := r.programs[h].Run(opts)
	return result{verdict, opts.DataOut}, err
}

// trySegments does so with a frame that stands for segments of a size.
func (r *rig) trySegments(h hook, device string, frame []byte, size uint32) (result, error) {
	ctx := r.contextOf(h, device)
	binary.NativeEndian.PutUint32(ctx[164:], uint32(len(frame))/size+1) // gso_segs
	binary.NativeEndian.PutUint32(ctx[176:], size)                      // gso_size
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: ctx}
	verdict, err := r.programs[h].Run(opts)
	return result{verdict, opts.DataOut}, err
}

// contextOf is struct __sk_buff of linux/bpf.h for a program at a device: up to ifindex, the eleventh word. A packet that
// comes in has come by that device, as the tenth says.
func (r *rig) contextOf(h hook, device string) (ctx [192]byte) {
	ctx = r.context(device)
	came := r.cameBy
	if h == in || h == podIn {
		came = device
	}
	binary.NativeEndian.PutUint32(ctx[36:], r.devices[came].Index) // ingress_ifindex
	return ctx
}

// context is that of what has come by no device.
func (r *rig) context(device string) (ctx [192]byte) {
	binary.NativeEndian.PutUint32(ctx[40:], r.devices[device].Index)
	return ctx
}

// forget empties what programs write.
func (r *rig) forget(tb testing.TB) {
	tb.Helper()
	r.table.clear(tb)
	for name, m := range r.tables {
		if name == "slot_changes" {
			continue // written by the agent
		}
		if name == "flow_filter" {
			for chunk := range m.MaxEntries() {
				must(tb, m.Put(chunk, make([]byte, m.ValueSize())))
			}
			continue
		}
		key := make([]byte, m.KeySize())
		var keys [][]byte
		for entries := m.Iterate(); entries.Next(&key, new([]byte)); {
			keys = append(keys, bytes.Clone(key))
		}
		for _, k := range keys {
			if err := m.Delete(k); err != nil {
				tb.Fatalf("empty %s: %v", name, err)
			}
		}
	}
}

// age makes every flow look as if its last packet was so many seconds ago.
func (r *rig) age(tb testing.TB, seconds uint64) {
	tb.Helper()
	for _, w := range r.table.all(tb) {
		r.table.age(tb, w, seconds)
	}
}

// flows is how many directions of flows there are.
func (r *rig) flows(tb testing.TB) int { return len(r.table.all(tb)) }

// entries is how many entries a table has.
func (r *rig) entries(tb testing.TB, table string) (n int) {
	tb.Helper()
	var key, value []byte
	for entries := r.tables[table].Iterate(); entries.Next(&key, &value); {
		n++
	}
	return n
}

// settle says whether all flows of former maps have come along.
func (r *rig) settle(tb testing.TB, yes bool) {
	tb.Helper()
	r.say(tb, "flows_migrated", map[bool]uint64{true: 1}[yes])
}

// say writes a field of the map that is about all others.
func (r *rig) say(tb testing.TB, name string, what uint64) {
	tb.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.root, "maps", "about"), nil)
	must(tb, err)
	defer m.Close()
	value, err := m.LookupBytes(uint32(0))
	must(tb, err)
	f := field(tb, m, "about", name)
	size, err := btf.Sizeof(f.Type)
	must(tb, err)
	copy(value[f.Offset.Bytes():][:size], binary.LittleEndian.AppendUint64(nil, what))
	must(tb, m.Put(uint32(0), value))
}

// fieldOffset is where the values of a map have a field.
func fieldOffset(tb testing.TB, m *ebpf.Map, of, name string) uint32 {
	tb.Helper()
	return field(tb, m, of, name).Offset.Bytes()
}

// field is the member of that name of the values of a map.
func field(tb testing.TB, m *ebpf.Map, of, name string) btf.Member {
	tb.Helper()
	h, err := m.Handle()
	if err != nil {
		tb.Fatal(err)
	}
	defer h.Close()
	types, err := h.Spec(nil)
	if err != nil {
		tb.Fatal(err)
	}
	var value *btf.Struct
	if err := types.TypeByName(of, &value); err != nil {
		tb.Fatal(err)
	}
	for _, member := range value.Members {
		if member.Name == name {
			return member
		}
	}
	tb.Fatalf("struct %s has no %s", of, name)
	return btf.Member{}
}

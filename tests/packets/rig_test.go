package packets

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// hook is one of the two programs of a device.
type hook string

const (
	in  hook = "device_in"
	out hook = "device_out"
)

// The devices of the node of every test, by name.
const (
	uplink = "hg-up"
	tunnel = "hg-tun"
)

// Verdicts, as of linux/pkt_cls.h.
const (
	pass = 0
	drop = 2
)

// rig is the datapath in the kernel, with what it was told.
type rig struct {
	root     string
	dp       *datapath.Datapath
	planner  *plan.Planner
	told     plan.Model
	devices  map[string]plan.Device
	programs map[hook]*ebpf.Program
	tables   map[string]*ebpf.Map // those that programs write
	counted  map[string]uint64
}

// newRig loads the datapath, with two devices and the addresses of a node.
func newRig(tb testing.TB) *rig {
	tb.Helper()
	r := &rig{
		root: testenv.BPFRoot(tb), planner: plan.New(plan.Sizes{}),
		devices: map[string]plan.Device{}, programs: map[hook]*ebpf.Program{}, tables: map[string]*ebpf.Map{},
	}
	cfg := datapath.Config{Root: r.root, Cgroup: testenv.Cgroup(tb), Node: "node", Version: "test", Sizes: datapath.DefaultSizes, Promises: 64, Flows: 1 << 14}
	dp, err := datapath.Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r.dp = dp
	tb.Cleanup(dp.Close)
	if err := dp.Attach(); err != nil {
		tb.Fatal(err)
	}
	r.addDevices(tb)
	for _, h := range []hook{in, out} {
		if r.programs[h], err = ebpf.LoadPinnedProgram(filepath.Join(r.root, "maps", string(h)), nil); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { r.programs[h].Close() })
	}
	for _, name := range []string{"conntrack", "fragments", "affinities"} {
		if r.tables[name], err = ebpf.LoadPinnedMap(filepath.Join(r.root, "maps", name), nil); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { r.tables[name].Close() })
	}
	r.counted = r.counters(tb)
	return r
}

// addDevices makes the devices and tells the datapath their addresses.
func (r *rig) addDevices(tb testing.TB) {
	tb.Helper()
	var list []plan.Device
	node := map[netip.Addr]plan.AddressKind{
		netip.MustParseAddr("127.0.0.1"): plan.LoopbackAddress, netip.IPv6Loopback(): plan.LoopbackAddress,
	}
	for _, d := range []plan.Device{
		{Name: uplink, IP4: v4.node, IP6: v6.node},
		{Name: tunnel, IP4: v4.tunnel, IP6: v6.tunnel},
	} {
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: d.Name}, PeerName: d.Name + "-peer"}
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
	got, err := r.try(h, device, frame)
	if err != nil {
		tb.Fatalf("run %s with %d bytes: %v", h, len(frame), err)
	}
	return got.verdict, got.frame
}

// try does so with a frame that the kernel may not take, since it is shorter
// than its IP header.
func (r *rig) try(h hook, device string, frame []byte) (result, error) {
	// struct __sk_buff of linux/bpf.h up to ifindex, the eleventh word.
	var ctx [192]byte
	binary.NativeEndian.PutUint32(ctx[40:], r.devices[device].Index)
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: ctx}
	verdict, err := r.programs[h].Run(opts)
	return result{verdict, opts.DataOut}, err
}

// forget empties what programs write.
func (r *rig) forget(tb testing.TB) {
	tb.Helper()
	for name, m := range r.tables {
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
	m := r.tables["conntrack"]
	at := fieldOffset(tb, m, "last_seen_ns")
	var keys, values [][]byte
	var key, value []byte
	for entries := m.Iterate(); entries.Next(&key, &value); {
		keys, values = append(keys, bytes.Clone(key)), append(values, bytes.Clone(value))
	}
	for i, v := range values {
		last := binary.NativeEndian.Uint64(v[at:]) - seconds*1e9
		binary.NativeEndian.PutUint64(v[at:], last)
		if err := m.Put(keys[i], v); err != nil {
			tb.Fatal(err)
		}
	}
}

// flows is how many tuples the datapath knows.
func (r *rig) flows(tb testing.TB) (n int) {
	tb.Helper()
	var key, value []byte
	for entries := r.tables["conntrack"].Iterate(); entries.Next(&key, &value); {
		n++
	}
	return n
}

// fieldOffset is where the values of a map have a field.
func fieldOffset(tb testing.TB, m *ebpf.Map, name string) uint32 {
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
	if err := types.TypeByName("flow", &value); err != nil {
		tb.Fatal(err)
	}
	for _, member := range value.Members {
		if member.Name == name {
			return member.Offset.Bytes()
		}
	}
	tb.Fatalf("struct flow has no %s", name)
	return 0
}

// counters returns every counter and every drop reason, those drops that are
// told of a Service with its name.
func (r *rig) counters(tb testing.TB) map[string]uint64 {
	tb.Helper()
	i, err := datapath.Inspect(r.root)
	if err != nil {
		tb.Fatal(err)
	}
	defer i.Close()
	status, err := i.Status()
	if err != nil {
		tb.Fatal(err)
	}
	drops, err := i.Drops()
	if err != nil {
		tb.Fatal(err)
	}
	all := maps.Clone(status.Counters)
	for reason, n := range status.Drops {
		all["drop "+reason] = n
	}
	for id, reasons := range drops {
		for reason, n := range reasons {
			all["drop "+reason+" of "+r.told.Services[id].Name] += n
		}
	}
	return all
}

// wantCounts compares what was counted since the last call.
func (r *rig) wantCounts(tb testing.TB, want map[string]uint64) {
	tb.Helper()
	now := r.counters(tb)
	got := map[string]uint64{}
	for name, n := range now {
		if n != r.counted[name] {
			got[name] = n - r.counted[name]
		}
	}
	r.counted = now
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("counted (-want +got):\n%s", diff)
	}
}

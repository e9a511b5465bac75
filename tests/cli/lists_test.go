package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"testing"

	"github.com/headgate/headgate/pkg/cli"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/tests/testenv"
)

// manyServices are so many that what a list costs each of them shows.
const manyServices = 10_000

// Of a large cluster a list is to take no more than 50 MB, the program and the maps that it reads
// among them. What is counted here is all memory that is ever asked for, whether or not it is
// given back: no clock and no collector has a say in it.
func TestListsOfManyServicesTakeLittleMemory(t *testing.T) {
	testenv.Need(t)
	root := testenv.BPFRoot(t)
	err := bringIntoForce(testenv.Cgroup(t), root, func(_ context.Context, inbox *reconciler.Inbox) error {
		u := many()
		local := &lb.Slice{SliceName: lb.SliceName{Namespace: "crowd", Name: "dns"}, Service: "dns", Ports: []lb.SlicePort{{Protocol: lb.UDP, Port: 53}}}
		local.Endpoints = []lb.Endpoint{{Addr: netip.MustParseAddr("127.0.0.1"), Ready: true, Serving: true}}
		name := lb.ServiceName(local.SliceName)
		u.Slices[local.SliceName], u.Services[name] = local, &lb.Service{
			ServiceName: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Ports: []lb.ServicePort{{Protocol: lb.UDP, Port: 53}},
		}
		inbox.Update(u)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	end, err := holdSocket(testenv.Cgroup(t), "udp", "10.96.0.10", "53") // flows are gone through then
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, tc := range []struct {
		args []string
		most uint64 // bytes for each Service
	}{
		{[]string{"service", "list"}, 1300},
		{[]string{"service", "list", "-o", "wide"}, 1300},
		{[]string{"service", "list", "crowd/web-4711"}, 1000},
		{[]string{"frontend", "list"}, 2000},
		{[]string{"backend", "list"}, 3300},
		{[]string{"table", "list"}, 3200},
		{[]string{"flow", "list"}, 1500},
		{[]string{"top", "--once", "--interval", "100ms"}, 4500},
		{[]string{"status"}, 500},
		{[]string{"service", "list", "-j"}, 1000},
		{[]string{"backend", "list", "-j"}, 3300},
		{[]string{"frontend", "list", "-j"}, 2500},
		{[]string{"frontend", "list", "-o", "name"}, 2000},
	} {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		cli.Run(append(tc.args, "--bpf-root", root, "--state-dir", t.TempDir()), "v1.2.3", io.Discard, io.Discard)
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / manyServices; each > tc.most {
			t.Errorf("%q: %d bytes for each Service, want %d at the most", tc.args, each, tc.most)
		} else {
			t.Logf("%q: %d bytes and %.1f objects for each Service", tc.args, each, float64(after.Mallocs-before.Mallocs)/manyServices)
		}
	}
}

// many is Services with a ClusterIP and three backends each.
func many() lb.Update {
	u := lb.Update{Node: &lb.Node{Name: "node-a"}, Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	for i := range manyServices {
		name := lb.ServiceName{Namespace: "crowd", Name: fmt.Sprint("web-", i)}
		u.Services[name] = &lb.Service{
			ServiceName: name, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})},
			Ports: []lb.ServicePort{{Name: "http", Protocol: lb.TCP, Port: 80}},
		}
		slice := &lb.Slice{SliceName: lb.SliceName(name), Service: name.Name, Ports: []lb.SlicePort{{Name: "http", Protocol: lb.TCP, Port: 8080}}}
		for b := range 3 {
			slice.Endpoints = append(slice.Endpoints, lb.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(128 + b), byte(i >> 8), byte(i)}), Ready: true, Serving: true})
		}
		u.Slices[slice.SliceName] = slice
	}
	return u
}

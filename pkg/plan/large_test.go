package plan

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// manyPorts returns a Service with so many ports, with names as long as they may be, and its
// slice of a hundred endpoints.
func manyPorts(ports int) (*lb.Service, *lb.Slice) {
	label := strings.Repeat("x", 63)
	svc := &lb.Service{ServiceName: lb.ServiceName{Namespace: label, Name: label}, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
	slice := hundred(0, 0)
	slice.SliceName, slice.Service = lb.SliceName{Namespace: label, Name: strings.Repeat("x", 253)}, label
	for i := range ports {
		name := fmt.Sprintf("%063d", i)
		svc.Ports = append(svc.Ports, lb.ServicePort{Name: name, Protocol: lb.TCP, Port: uint16(1 + i)})
		slice.Ports = append(slice.Ports, lb.SlicePort{Name: name, Protocol: lb.TCP, Port: uint16(1 + i)})
	}
	return svc, slice
}

// cost is what it takes to plan a Service, for each of its backends.
type cost struct {
	bytes int
	cpu   time.Duration
	ops   map[string]int // of all, by kind
}

// costOf plans a Service with so many ports, and returns what it takes.
func costOf(t *testing.T, ports int) (c cost, st *lb.State, p *Planner) {
	t.Helper()
	svc, slice := manyPorts(ports)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	heap, cpu := heapInUse(), threadTime(t)
	st, p = lb.NewState(), New(Sizes{})
	u := oneSlice(slice)
	u.Services = map[lb.ServiceName]*lb.Service{svc.ServiceName: svc}
	st.Apply(u)
	c.ops = kinds(set(t, st, p, svc.ServiceName))
	backends := 100 * ports
	c.cpu = (threadTime(t) - cpu) / time.Duration(backends)
	c.bytes = (heapInUse() - heap) / backends
	return c, st, p
}

// A Service with 1,000 ports costs what its backends cost, however many ports there are.
func TestAServiceOfManyPortsIsBounded(t *testing.T) {
	few, _, _ := costOf(t, 10)
	many, st, p := costOf(t, 1000)
	want := map[string]int{"PutBackend": 100_000, "PutFrontend": 1000, "PutService": 1000, "PutAddress": 1}
	if diff := cmp.Diff(want, many.ops); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
	const most = 400 // twice what a backend takes with its share of the rest
	if many.bytes > most {
		t.Errorf("a backend takes %d bytes, want %d at most", many.bytes, most)
	}
	if many.cpu > 20*max(few.cpu, time.Microsecond) {
		t.Errorf("a backend takes %v with 1,000 ports, and %v with 10", many.cpu, few.cpu)
	}
	svc, slice := manyPorts(1000)
	slice.Endpoints[0].Addr = netip.MustParseAddr("10.200.0.1")
	st.Apply(oneSlice(slice))
	want = map[string]int{"PutBackend": 1000, "PutTable": 1000, "PutFrontend": 1000}
	if diff := cmp.Diff(want, kinds(set(t, st, p, svc.ServiceName))); diff != "" {
		t.Errorf("operations of another endpoint (-want +got):\n%s", diff)
	}
}

// kinds counts operations by kind.
func kinds(ops []Op) map[string]int {
	n := map[string]int{}
	for _, op := range ops {
		n[strings.TrimPrefix(fmt.Sprintf("%T", op), "plan.")]++
	}
	return n
}

// heapInUse returns what is in use on the heap, without garbage.
func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// threadTime returns the CPU time of this thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	const ofThread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(ofThread, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package agent

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/plan"
)

// kernel is what maps may hold: Services with backends, whose IDs count up.
type kernel struct {
	plan.Content
	loads map[uint32]datapath.Load
	slots uint32
}

func newKernel() *kernel {
	return &kernel{plan.Content{
		Frontends: map[lb.AddrPort]plan.Frontend{}, Tables: map[plan.Table][]uint32{}, Backends: map[uint32]lb.AddrPort{}, Services: map[uint32]plan.Service{},
	}, map[uint32]datapath.Load{}, 0}
}

// serve adds a Service with a ClusterIP and a NodePort.
func (k *kernel) serve(name string, a lb.Algorithm, ids ...uint32) {
	known := plan.Table{Offset: k.slots, Size: uint32(len(ids))}
	k.slots += known.Size
	k.Tables[known] = ids
	for _, id := range ids {
		k.Backends[id] = lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 244, byte(id >> 8), byte(id)}), Port: 80, Protocol: lb.TCP}
	}
	service := uint32(len(k.Services) + 1)
	k.Services[service] = plan.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: name}, Port: "http", Protocol: lb.TCP}
	for _, kind := range []byte{1, 2} {
		at := lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 96, kind, byte(service)}), Port: 80, Protocol: lb.TCP}
		k.Frontends[at] = plan.Frontend{Service: service, Known: known, Internal: plan.View{Table: known, Algorithm: a}}
	}
}

// lines is one line for each backend.
func lines(all []metrics.Backend) (out []string) {
	for _, b := range all {
		out = append(out, fmt.Sprintf("%s %s in flight %d, failures %d, suspect %v, %s", b.Service.Name, b.Backend.Addr, b.InFlight, b.Failures, b.Suspect, b.Answer))
	}
	return out
}

func TestBackendsAreToldOfWhereThereIsSomethingToTell(t *testing.T) {
	k := newKernel()
	k.serve("plain", lb.AlgorithmDefault, 1, 2, 3)
	k.serve("hashed", lb.Maglev, 3, 4)
	k.serve("least", lb.LC, 4, 5)
	k.loads = map[uint32]datapath.Load{
		1: {InFlight: 1, Failures: 1}, 2: {InFlight: 2}, 3: {InFlight: 3, Failures: 3, Suspect: time.Minute},
		4: {InFlight: 4}, 5: {InFlight: 5, Answer: time.Millisecond},
	}
	delete(k.Backends, 2) // while it was read
	byDefault := []string{
		"hashed 10.244.0.3 in flight 3, failures 3, suspect true, 0s",
		"plain 10.244.0.1 in flight 1, failures 1, suspect false, 0s",
		"plain 10.244.0.3 in flight 3, failures 3, suspect true, 0s",
		"least 10.244.0.4 in flight 4, failures 0, suspect false, 0s",
		"least 10.244.0.5 in flight 5, failures 0, suspect false, 1ms",
	}
	got, omitted := backendMetrics(k.Content, k.loads, false)
	if diff := cmp.Diff(byDefault, lines(got)); diff != "" || omitted != 0 {
		t.Errorf("%d omitted (-want +got):\n%s", omitted, diff)
	}
	everything := append(byDefault[:3:3], "hashed 10.244.0.4 in flight 4, failures 0, suspect false, 0s", byDefault[3], byDefault[4])
	got, omitted = backendMetrics(k.Content, k.loads, true)
	if diff := cmp.Diff(everything, lines(got)); diff != "" || omitted != 0 {
		t.Errorf("all, %d omitted (-want +got):\n%s", omitted, diff)
	}
}

func TestHowManyBackendsAreToldOfIsBounded(t *testing.T) {
	k := newKernel()
	var ids []uint32
	for id := range uint32(maxBackendMetrics + 500) {
		ids = append(ids, id+1)
	}
	k.serve("large", lb.P2C, ids...)
	k.serve("sick", lb.Random, 9000)
	k.loads[9000] = datapath.Load{Failures: 1}
	got, omitted := backendMetrics(k.Content, k.loads, false)
	if len(got) != maxBackendMetrics || omitted != 501 || got[0].Service.Name != "sick" {
		t.Errorf("%d are told of and %d are not, the first is %+v; want %d, 501 and the one that fails", len(got), omitted, got[0], maxBackendMetrics)
	}
	if got, omitted := backendMetrics(k.Content, k.loads, true); len(got) != maxBackendMetrics+501 || omitted != 0 {
		t.Errorf("of all %d are told of and %d are not", len(got), omitted)
	}
}

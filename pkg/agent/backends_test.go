package agent

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"
	"github.com/headgate/headgate/pkg/plan"
)

// fakeMaps is what maps may hold: Services with backends, whose IDs count up.
type fakeMaps struct {
	held  plan.Content
	loads map[uint32]datapath.Load
	began map[uint32]uint64 // connections, by the ID of the Service port
	slots uint32

	failed  map[uint32]datapath.Failures // likewise
	dropped map[uint32]map[string]uint64 // likewise
}

func newFakeMaps() *fakeMaps {
	return &fakeMaps{plan.Content{
		Frontends: map[lb.AddrPort]plan.Frontend{}, Tables: map[plan.Table][]uint32{}, Backends: map[uint32]lb.AddrPort{}, Services: map[uint32]plan.Service{},
	}, map[uint32]datapath.Load{}, map[uint32]uint64{}, 0, nil, nil}
}

func (m *fakeMaps) Frontends(do func(lb.AddrPort, plan.Frontend) error) error {
	for at, f := range m.held.Frontends {
		if err := do(at, f); err != nil {
			return err
		}
	}
	return nil
}

func (m *fakeMaps) Slots(t plan.Table) ([]uint32, error) { return m.held.Tables[t], nil }

func (m *fakeMaps) Backend(id uint32) datapath.Backend {
	return datapath.Backend{At: m.held.Backends[id], Load: m.loads[id]}
}

func (m *fakeMaps) Service(id uint32) (plan.Service, error) { return m.held.Services[id], nil }

func (m *fakeMaps) Services() (iter.Seq[uint32], error) {
	return slices.Values(slices.Sorted(maps.Keys(m.began))), nil
}

func (m *fakeMaps) Traffic(service uint32) (datapath.ServiceTraffic, error) {
	return datapath.ServiceTraffic{Connections: m.began[service], Traffic: datapath.Traffic{Failed: m.failed[service]}}, nil
}

func (m *fakeMaps) Drops(service uint32) (map[string]uint64, error) { return m.dropped[service], nil }

// connect adds a Service port of which so many connections began, and returns its name.
func (m *fakeMaps) connect(id uint32, n uint64) string {
	name := fmt.Sprint("web-", id)
	m.held.Services[id] = plan.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: name}, Port: "http", Protocol: lb.TCP}
	m.began[id] = n
	return name
}

// serve adds a Service with a ClusterIP and a NodePort.
func (m *fakeMaps) serve(name string, a lb.Algorithm, ids ...uint32) {
	known := plan.Table{Offset: m.slots, Size: uint32(len(ids))}
	m.slots += known.Size
	m.held.Tables[known] = ids
	for _, id := range ids {
		m.held.Backends[id] = lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 244, byte(id >> 8), byte(id)}), Port: 80, Protocol: lb.TCP}
	}
	service := uint32(len(m.held.Services) + 1)
	m.held.Services[service] = plan.Service{ServiceName: lb.ServiceName{Namespace: "default", Name: name}, Port: "http", Protocol: lb.TCP}
	for _, kind := range []byte{1, 2} {
		at := lb.AddrPort{Addr: netip.AddrFrom4([4]byte{10, 96, kind, byte(service)}), Port: 80, Protocol: lb.TCP}
		m.held.Frontends[at] = plan.Frontend{Service: service, Members: known, Views: [lb.NumViews]plan.View{lb.Internal: {Table: known, Algorithm: a}}}
	}
}

// failing says whether any backend fails.
func (m *fakeMaps) failing() bool {
	for _, l := range m.loads {
		if l.Failures > 0 || l.Ejected > 0 {
			return true
		}
	}
	return false
}

// lines is one line for each backend.
func lines(all []metrics.Backend) (out []string) {
	for _, b := range all {
		out = append(out, fmt.Sprintf("%s %s in flight %d, failures %d, ejected %v, %s", b.Service.Name, b.Backend.Addr, b.InFlight, b.Failures, b.Ejected, b.Response))
	}
	return out
}

func mustMeasure(tb testing.TB, m *fakeMaps, all bool) ([]metrics.Backend, int) {
	tb.Helper()
	out, omitted, err := backendMetrics(m, all, m.failing())
	if err != nil {
		tb.Fatal(err)
	}
	return out, omitted
}

func TestBackendsAreToldOfWhereThereIsSomethingToTell(t *testing.T) {
	m := newFakeMaps()
	m.serve("plain", lb.AlgorithmDefault, 1, 2, 3)
	m.serve("hashed", lb.Maglev, 3, 4)
	m.serve("least", lb.LC, 4, 5)
	m.loads = map[uint32]datapath.Load{
		1: {InFlight: 1, Failures: 1}, 2: {InFlight: 2}, 3: {InFlight: 3, Failures: 3, Ejected: time.Minute},
		4: {InFlight: 4}, 5: {InFlight: 5, Response: time.Millisecond},
	}
	delete(m.held.Backends, 2) // while it was read
	byDefault := []string{
		"hashed 10.244.0.3 in flight 3, failures 3, ejected true, 0s",
		"plain 10.244.0.1 in flight 1, failures 1, ejected false, 0s",
		"plain 10.244.0.3 in flight 3, failures 3, ejected true, 0s",
		"least 10.244.0.4 in flight 4, failures 0, ejected false, 0s",
		"least 10.244.0.5 in flight 5, failures 0, ejected false, 1ms",
	}
	got, omitted := mustMeasure(t, m, false)
	if diff := cmp.Diff(byDefault, lines(got)); diff != "" || omitted != 0 {
		t.Errorf("%d omitted (-want +got):\n%s", omitted, diff)
	}
	everything := append(byDefault[:3:3], "hashed 10.244.0.4 in flight 4, failures 0, ejected false, 0s", byDefault[3], byDefault[4])
	got, omitted = mustMeasure(t, m, true)
	if diff := cmp.Diff(everything, lines(got)); diff != "" || omitted != 0 {
		t.Errorf("all, %d omitted (-want +got):\n%s", omitted, diff)
	}
}

func TestHowManyBackendsAreToldOfIsBounded(t *testing.T) {
	m := newFakeMaps()
	var ids []uint32
	for id := range uint32(maxBackendMetrics + 500) {
		ids = append(ids, id+1)
	}
	m.serve("large", lb.P2C, ids...)
	m.serve("sick", lb.Random, 9000)
	m.loads[9000] = datapath.Load{Failures: 1}
	got, omitted := mustMeasure(t, m, false)
	if len(got) != maxBackendMetrics || omitted != 501 || got[0].Service.Name != "sick" {
		t.Errorf("%d are told of and %d are not, the first is %+v; want %d, 501 and the one that fails", len(got), omitted, got[0], maxBackendMetrics)
	}
	if got, omitted := mustMeasure(t, m, true); len(got) != maxBackendMetrics+501 || omitted != 0 {
		t.Errorf("of all %d are told of and %d are not", len(got), omitted)
	}
}

// counted returns the Services whose connections are told of, and of how many nothing is.
func counted(tb testing.TB, told *toldPorts, m *fakeMaps, most int) (map[string]uint64, int) {
	tb.Helper()
	var s metrics.Snapshot
	if err := told.metrics(m, most, &s); err != nil {
		tb.Fatal(err)
	}
	ports, omitted := s.ServiceTraffic, s.ServicesOmitted
	out := map[string]uint64{}
	for _, p := range ports {
		out[p.Service.Name] = p.Connections
	}
	if len(out) != len(ports) {
		tb.Errorf("%d ports have %d names", len(ports), len(out))
	}
	return out, omitted
}

// mostPorts is the default.
const mostPorts = 100

func TestConnectionsAreToldOfTheServicesWithTheMost(t *testing.T) {
	m, told := newFakeMaps(), &toldPorts{}
	m.connect(1, 0)
	few := m.connect(2, 5)
	var most string
	for id := range uint32(mostPorts + 1) {
		most = m.connect(10+id, 1000+uint64(id))
	}
	got, omitted := counted(t, told, m, mostPorts)
	if len(got) != mostPorts || omitted != 2 || got[few] != 0 || got["web-10"] != 0 || got[most] != 1000+mostPorts {
		t.Errorf("%d are told of, %d are not, %s has %d; want %d, those with the fewest left out, and 1100", len(got), omitted, most, got[most], mostPorts)
	}
	if got, omitted := counted(t, told, m, math.MaxInt); len(got) != mostPorts+2 || omitted != 0 || got[few] != 5 {
		t.Errorf("of all %d are told of and %d are not, %s has %d", len(got), omitted, few, got[few])
	}
}

func TestSeriesOfConnectionsDoNotComeAndGo(t *testing.T) {
	m, told := newFakeMaps(), &toldPorts{}
	for id := range uint32(mostPorts - 1) {
		m.connect(10+id, 1_000_000)
	}
	one, other := m.connect(1, 1000), m.connect(2, 999)
	for i := range uint64(20) {
		if got, _ := counted(t, told, m, mostPorts); got[one] == 0 || got[other] != 0 {
			t.Fatalf("with %d and %d connections %s is told of: %v, %s: %v; the first was before", m.began[1], m.began[2], one, got[one] > 0, other, got[other] > 0)
		}
		m.began[1+uint32((i+1)%2)] += 10 // now the one has more, now the other
	}
	m.began[2] = 2000
	if got, omitted := counted(t, told, m, mostPorts); got[other] != 2000 || got[one] != 0 || omitted != 1 {
		t.Errorf("with many more connections %s has %d, %s %d, %d are omitted", other, got[other], one, got[one], omitted)
	}
}

func TestOfAServiceThatHasGoneMeanwhileNothingIsTold(t *testing.T) {
	m := newFakeMaps()
	m.connect(1, 7)
	delete(m.held.Services, 1)
	if got, omitted := counted(t, &toldPorts{}, m, mostPorts); len(got) != 0 || omitted != 0 {
		t.Errorf("%v is told of, %d are omitted", got, omitted)
	}
}

// A Service that refuses everybody has no connections, and has to be among those that are told of.
// A TCP flow that no backend takes does not begin: a Service that fails them all has series of its failures.
func TestServicesThatFailEverythingAreToldOf(t *testing.T) {
	m := newFakeMaps()
	m.connect(1, 0)
	m.failed = map[uint32]datapath.Failures{1: {Refused: 6}}
	var s metrics.Snapshot
	err := (&toldPorts{}).metrics(m, mostPorts, &s)
	if err != nil || len(s.ServiceTraffic) != 1 || s.ServiceTraffic[0].Connections != 0 || s.ServiceTraffic[0].Failures["refused"] != 6 {
		t.Errorf("%+v, %v; want 6 refused and no connection", s.ServiceTraffic, err)
	}
}

func TestRefusalsCountForWhichServicesAreToldOf(t *testing.T) {
	m, told := newFakeMaps(), &toldPorts{}
	m.connect(1, 0)
	m.connect(2, 20)
	m.dropped = map[uint32]map[string]uint64{1: {"no_endpoint": 30}, 2: {"no_endpoint": 1}}
	for most, want := range map[int][]metrics.ServiceCount{
		0: nil,
		1: {{Service: lb.ServiceName{Namespace: "default", Name: "web-1"}, Port: "http", Reason: "no_endpoint", Count: 30}},
	} {
		var s metrics.Snapshot
		if err := told.metrics(m, most, &s); err != nil || len(s.ServiceTraffic) > 0 || s.ServicesOmitted != 2-most {
			t.Errorf("of %d: %+v, %d are omitted, %v", most, s.ServiceTraffic, s.ServicesOmitted, err)
		}
		if diff := cmp.Diff(want, s.ServiceDrops); diff != "" {
			t.Errorf("refusals of %d (-want +got):\n%s", most, diff)
		}
	}
}

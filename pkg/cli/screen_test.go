package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
)

// noon is when the screens of these tests are looked at.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// someStatus is that of a node with a bit of everything.
func someStatus() *status {
	few, none := uint32(31457), uint32(0)
	s := &status{
		Status: datapath.Status{
			Version: "v0.4.1", Node: "node-a", Cgroup: "/sys/fs/cgroup", Agent: true,
			Hooks: []datapath.Hook{{Name: "connect4", Attached: true}, {Name: "connect6", Attached: true}},
			Devices: []datapath.Device{
				{Name: "eth0", Hooks: []datapath.Hook{{Name: "device_in", Attached: true, By: "tcx"}, {Name: "device_out", Attached: true, By: "tcx"}}},
				{Name: "vxlan0", Hooks: []datapath.Hook{{Name: "device_in", Attached: true, By: "tcx"}, {Name: "device_out"}}},
			},
			Drops: map[string]uint64{"no_endpoint": 4100, "source_range": 3, "fragment": 0},
		},
		Frontends: 20, Services: 8, Backends: 31, Tables: 9, Avoided: 1, InFlight: 12304,
		Maps: []datapath.MapInfo{
			{Name: "about", Bytes: 1 << 12, MaxEntries: 1}, {Name: "affinities", Bytes: 7 << 20, MaxEntries: 65536, Entries: &none},
			{Name: "flow_table", Bytes: 48 << 20, MaxEntries: 1048576, Entries: &few}, {Name: "flow_traffic", Bytes: 12 << 20}, {Name: "socket_nat", Bytes: 4 << 20, MaxEntries: 65536},
			{Name: "devices", Bytes: 1 << 16, MaxEntries: 1024, Entries: &none},
		},
		Contact: &agent.Contact{Server: "https://192.0.2.1:6443", Synced: true},
		Live: &agent.Live{
			PID: 4711, Started: noon.Add(-76 * time.Hour), Follows: "the API server",
			Change:  &agent.Change{At: noon.Add(-800 * time.Millisecond), Took: 1900 * time.Microsecond},
			Failing: []agent.Failing{{Service: "default/dns:dns/TCP", Failed: 3, Connections: 5}, {Service: "default/web:http/TCP", Failed: 41, Connections: 60}},
			Refused: &agent.Refused{At: noon.Add(-2 * time.Second), Service: "default/api/TCP", Reason: "source_range"},
		},
		Problems: []agent.Problem{{Scope: "backend", Text: "Service default/web: backend \"10.244.12.2:8080/TCP\": refuses connections: this node prefers others until it takes one"}},
		Refusing: []refusing{{Service: "store/shop:http/TCP", Reason: "no_endpoint", Refused: 4100}},
	}
	s.Degraded = s.reasons()
	return s
}

func printed(t *testing.T, rows [][]string) string {
	t.Helper()
	var out strings.Builder
	if err := (command.Output{}).Print(&out, command.Table{Rows: rows}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTheScreenInTheDocsIsWhatStatusPrints(t *testing.T) {
	docs, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(docs), "$ headgate status\n")
	shown, _, _ = strings.Cut(shown, "```")
	if diff := cmp.Diff(printed(t, someStatus().screen(noon, "v0.4.1")), shown); diff != "" {
		t.Errorf("docs/install.md (-is +says):\n%s", diff)
	}
}

func TestTheScreenSaysWhatIsNotWell(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*status)
		want   []string
	}{
		{"no agent", func(s *status) { s.Agent, s.Live, s.LastAlive, s.Problems = false, nil, noon.Add(-3*time.Minute), nil }, []string{
			"DEGRADED: no agent runs", "nobody has followed changes for 3m0s (since 2026-11-22T11:57:00Z); what it programmed stays in force"}},
		{"an agent that is older than this program", func(s *status) { s.Live = nil; s.Version = "v0.3.0" }, []string{
			"v0.3.0 on node-a (this program is v0.4.1)", "running; it does not say more"}},
		{"a stopped agent", func(s *status) {
			s.Live, s.Silent, s.Contact.Lost = nil, "pid 4711 has not answered for 3 s (process state T, stopped)", noon
		}, []string{"DEGRADED: the agent does not answer, ", "agent     pid 4711 has not answered for 3 s (process state T, stopped)\n"}},
		{"no contact", func(s *status) { s.Contact.Lost = noon.Add(-31 * time.Second) }, []string{
			"no contact with the API server", "none with the API server for 31s: what was in force stays so"}},
		{"a program of sockets", func(s *status) { s.Hooks[0].Attached = false }, []string{
			"2 programs are not attached", "1 of 2 programs (NOT ATTACHED: connect4)"}},
		{"a device", func(*status) {}, []string{"1 program is not attached", "vxlan0 tcx NOT ATTACHED: device_out"}},
		{"nothing was refused", func(s *status) { s.Drops, s.Live.Refused = nil, nil }, []string{"refused   nothing\n"}},
		{"no device yet", func(s *status) { s.Devices, s.Live.Starting = nil, true }, []string{"DEGRADED: the agent is starting", "none yet: the agent is starting"}},
		{"no device", func(s *status) { s.Devices = nil }, []string{"no device is chosen"}},
	} {
		s := someStatus()
		tc.change(s)
		s.Degraded = s.reasons()
		got := printed(t, s.screen(noon, "v0.4.1"))
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not in\n%s", tc.name, want, got)
			}
		}
	}
}

// Whatever is wrong with Services, objects and backends, a node is well where nothing of its own is wrong.
func TestANodeIsWellWhereNothingOfItsOwnIsWrong(t *testing.T) {
	s := someStatus()
	s.Devices, s.Problems = s.Devices[:1], []agent.Problem{{Scope: "backend"}, {Scope: "object"}}
	if got := s.reasons(); len(got) > 0 {
		t.Errorf("not well: %q", got)
	}
	s.Problems = append(s.Problems, agent.Problem{Scope: "node"})
	if got := s.reasons(); len(got) != 1 || got[0] != "1 problem" {
		t.Errorf("with a problem of the node: %q", got)
	}
}

func TestTheLineOfServicesNamesTheWorst(t *testing.T) {
	s := someStatus()
	for want, change := range map[string]func(){
		"1 refuses everybody (store/shop:http/TCP no_endpoint), 2 fail > 50 % (default/web:http/TCP and 1 more), 1 backend avoided": func() {},
		"3 refuse everybody (a/a/TCP no_endpoint and 2 more), 1 fails > 50 % (default/dns:dns/TCP), 2 backends avoided": func() {
			s.Refusing, s.Avoided = []refusing{{"a/a/TCP", noEndpoint, 3}, {"b/b/TCP", noEndpoint, 1}, {"c/c/TCP", noEndpoint, 0}}, 2
			s.Live.Failing = s.Live.Failing[:1]
		},
		"": func() { s.Refusing, s.Live, s.Avoided = nil, nil, 0 },
	} {
		s = someStatus()
		change()
		if got := s.servicesLine(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTimesAndNumbersAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1900 * time.Microsecond: "1.9ms", 800 * time.Millisecond: "800ms", 9400 * time.Millisecond: "9.4s", 125 * time.Second: "2m5s",
		3 * time.Hour: "3h0m", 76 * time.Hour: "3d4h",
	} {
		if got := short(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

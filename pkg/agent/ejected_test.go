package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

func TestOwnersHearOfEjectedBackendsOfTheirServices(t *testing.T) {
	m := newFakeMaps()
	m.serve("web", lb.Random, 1, 2)
	m.serve("api", lb.Random, 2, 3)
	m.serve("careless", lb.Random, 2)
	for at, f := range m.held.Frontends {
		if m.held.Services[f.Service].Name != "careless" {
			f.PassiveHealth = lb.SwitchOn
			m.held.Frontends[at] = f
		}
	}
	for _, c := range []struct {
		ejected []uint32
		want    []string
	}{
		{nil, nil},
		{[]uint32{9}, nil},
		{[]uint32{2}, []string{"Service default/api 10.244.0.2:80/TCP", "Service default/web 10.244.0.2:80/TCP"}},
		{[]uint32{1, 3}, []string{"Service default/api 10.244.0.3:80/TCP", "Service default/web 10.244.0.1:80/TCP"}},
	} {
		problems, err := ejectedProblems(m, c.ejected)
		var got []string
		for _, p := range problems {
			got = append(got, p.Object+" "+p.Value)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("of ejected %v, %v (-want +got):\n%s", c.ejected, err, diff)
		}
	}
}

// A refusal comes from a process or its node; silence comes from the network or a node that is gone.
func TestTheProblemOfAnEjectedBackendSaysHowItFailed(t *testing.T) {
	for _, tc := range []struct {
		load         datapath.Load
		want, remedy string
	}{
		{datapath.Load{Traffic: datapath.Traffic{Failed: datapath.Failures{Refused: 3, Reset: 9}}}, "refuses connections", "look at the process"},
		{datapath.Load{Traffic: datapath.Traffic{Failed: datapath.Failures{TimedOut: 3}}}, "does not answer connections", "look at its node, and at routes"},
		{datapath.Load{Traffic: datapath.Traffic{Failed: datapath.Failures{Unreachable: 1}}}, "does not answer connections", "look at its node, and at routes"},
		{datapath.Load{Traffic: datapath.Traffic{Failed: datapath.Failures{Refused: 1, TimedOut: 1}}}, "has refused connections, and left others without an answer", "look at the process"},
		{datapath.Load{Traffic: datapath.Traffic{Failed: datapath.Failures{Refused: 3}}, Probed: true}, "fails its probe: this node prefers others until a probe succeeds", "look at what headgate.dev/probe asks"},
		{datapath.Load{}, "does not take connections", "look at the process"},
	} {
		m := newFakeMaps()
		m.serve("web", lb.Random, 1)
		for at, f := range m.held.Frontends {
			f.PassiveHealth = lb.SwitchOn
			m.held.Frontends[at] = f
		}
		m.loads[1] = tc.load
		problems, err := ejectedProblems(m, []uint32{1})
		if err != nil || len(problems) != 1 || strings.TrimSuffix(problems[0].Reason, ": this node prefers others until it takes one") != tc.want || !strings.HasPrefix(problems[0].Remedy, tc.remedy) {
			t.Errorf("%+v: %v, %v", tc.load.Failed, problems, err)
		}
	}
}

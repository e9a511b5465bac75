package cli

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/pkg/agent"
)

// What an agent does not say yet is not well.
func TestTheVerdictWaitsForAnAgentThatStarts(t *testing.T) {
	for _, tc := range []struct {
		live *agent.Live
		want []string
	}{
		{nil, []string{"the agent does not answer"}},
		{&agent.Live{Starting: true}, []string{"the agent is starting"}},
		{&agent.Live{}, []string{}},
	} {
		s := status{Live: tc.live}
		s.Agent = true
		if got := s.reasons(); !slices.Equal(got, tc.want) {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// A Service that refuses for a fault of the node is named; what Kubernetes says is none.
func TestTheVerdictNamesServicesThatTheNodeDoesNotServe(t *testing.T) {
	for _, tc := range []struct {
		unserved []string
		faults   []agent.Refused
		want     []string
	}{
		{nil, nil, []string{}},
		{[]string{"default/web"}, nil, []string{"default/web cannot be served"}},
		{
			[]string{"a/a", "a/b", "a/c", "a/d", "a/e"}, []agent.Refused{{Service: "default/web:http/TCP", Reason: "table_full"}},
			[]string{"a/a and a/b and a/c and 2 more cannot be served", "clients are refused of default/web:http/TCP (table_full)"},
		},
	} {
		s := status{Unserved: tc.unserved, Live: &agent.Live{Faults: tc.faults}}
		s.Agent = true
		if got := s.reasons(); !slices.Equal(got, tc.want) {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

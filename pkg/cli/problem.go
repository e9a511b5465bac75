package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// problem is something that is wrong, as the agent says it.
type problem struct {
	Scope   string `json:"scope"` // node, object or backend
	Problem string `json:"problem"`
}

func (p problem) names() []string {
	out := []string{p.Problem}
	// Of a file the object comes second.
	for _, part := range strings.SplitN(p.Problem, ": ", 3) {
		if kind, name, ok := strings.Cut(part, " "); ok && !strings.Contains(name, " ") {
			out = append(out, name, strings.ToLower(kind)+"/"+name)
			if _, short, ok := strings.Cut(name, "/"); ok {
				out = append(out, short)
			}
		}
	}
	return out
}

func (problem) owners() []plan.Service { return nil }

var problems = noun[problem]{
	name: "problem", kind: "Problem", short: "what is wrong, and what to do about it, as the agent of this node says", words: "[NAMESPACE/]OBJECT",
	columns: []column[problem]{
		{title: "SCOPE", of: func(p problem) any { return p.Scope }},
		{title: "PROBLEM", of: func(p problem) any { return p.Problem }},
	},
	read: readProblems, passing: true,
}

func newProblem(e *env) *cobra.Command { return problems.command(e) }

func readProblems(s *sight, do func(*problem) error) error {
	if !datapath.AgentRuns(s.env.bpfRoot) {
		return errors.New("no agent runs, so problems are unknown: start one; headgate status says since when")
	}
	_, late := s.env.place().AskLive(s.env.asking())
	if late != nil && !errors.Is(late, context.DeadlineExceeded) {
		return fmt.Errorf("problems are unknown: %w", late)
	}
	s.env.complain(late, "these problems are those that it reported last")
	report, err := s.env.readReport()
	for i, p := range report.Problems {
		if err == nil {
			err = do(&problem{report.ScopeOf(i), p})
		}
	}
	return err
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
)

// problem is something that is wrong, as the agent says it.
type problem struct {
	agent.Problem
}

func (p problem) names() []string {
	out := []string{p.Text}
	if kind, name, ok := strings.Cut(p.Object, " "); ok && !strings.Contains(name, " ") {
		out = append(out, name, strings.ToLower(kind)+"/"+name)
		if _, short, ok := strings.Cut(name, "/"); ok {
			out = append(out, short)
		}
	}
	return out
}

func (problem) owners() []plan.Service { return nil }

var problems = noun[problem]{
	name: "problem", kind: "Problem", short: "what is wrong, and what to do about it, as the agent of this node says", words: "[NAMESPACE/]OBJECT",
	columns: []column[problem]{
		{title: "SCOPE", of: func(p problem) any { return p.Scope }},
		{title: "PROBLEM", of: func(p problem) any { return p.Text }},
		{title: "SINCE", of: func(p problem) any { return p.Since.Local().Format(time.DateTime) }, wide: true},
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
	report, err := s.env.readReport()
	if err != nil {
		return err
	}
	if late != nil && len(report.Problems) == 0 {
		return fmt.Errorf("problems are unknown, there was none: %w", late)
	}
	s.env.complain(late, "these problems are those that it reported last")
	for _, p := range report.Problems {
		if err := do(&problem{p}); err != nil {
			return err
		}
	}
	return nil
}

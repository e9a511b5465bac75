package cli

import (
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
)

func newStatus(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what is in force, and what was counted",
		Args:  noArgs,
		RunE:  e.inspect(e.showStatus),
	}
}

func (e *env) showStatus(i *datapath.Inspector, _ []string) (table, error) {
	s, err := i.Status()
	if err != nil {
		return table{}, err
	}
	c, err := i.Content()
	if err != nil {
		return table{}, err
	}
	agent := "not running: what it programmed stays in force"
	if s.Agent {
		agent = "running"
	}
	rows := [][]string{
		{"agent", agent},
		{"version", s.Version},
		{"node", s.Node},
		{"cgroup", s.Cgroup},
		{"object", s.Object[:12]}, // enough to tell one from another
		{"frontends", fmt.Sprint(len(c.Frontends))},
		{"tables", fmt.Sprint(len(c.Tables))},
		{"backends", fmt.Sprint(len(c.Backends))},
		{"writes", fmt.Sprint(s.Writes)},
	}
	for _, h := range s.Hooks {
		state := "attached"
		if !h.Attached {
			state = "NOT ATTACHED"
		}
		rows = append(rows, []string{"hook " + h.Name, state})
	}
	rows = append(rows, counts("count", s.Counters)...)
	rows = append(rows, counts("drop", s.Drops)...)
	said, saidRows, err := e.said(s.Agent)
	if err != nil {
		return table{}, err
	}
	value := struct {
		datapath.Status
		Frontends int      `json:"frontends"`
		Tables    int      `json:"tables"`
		Backends  int      `json:"backends"`
		Sockets   string   `json:"sockets,omitempty"`
		Problems  []string `json:"problems"`
	}{s, len(c.Frontends), len(c.Tables), len(c.Backends), said.Sockets, said.Problems}
	return table{rows: append(rows, saidRows...), value: value}, nil
}

// said returns what the agent says of itself, as long as it runs: what it said
// before may be true no more.
func (e *env) said(runs bool) (r agent.Report, rows [][]string, err error) {
	if runs {
		r, err = agent.ReadReport(e.state, e.bpfRoot)
	}
	if r.Problems == nil {
		r.Problems = []string{} // an empty list, for programs
	}
	if r.Sockets != "" {
		rows = append(rows, []string{"sockets", r.Sockets})
	}
	for _, p := range r.Problems {
		rows = append(rows, []string{"problem", p})
	}
	return r, rows, err
}

// counts returns a row for each counter, by name.
func counts(what string, m map[string]uint64) (rows [][]string) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, []string{what + " " + name, fmt.Sprint(m[name])})
	}
	return rows
}

func newVersion(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.print(cmd.OutOrStdout(), table{
				rows:  [][]string{{"headgate", e.version}, {"go", runtime.Version()}, {"platform", runtime.GOOS + "/" + runtime.GOARCH}},
				value: map[string]string{"headgate": e.version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH},
			})
		},
	}
}

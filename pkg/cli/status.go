package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
)

func newStatus(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what is in force, and what was counted",
		Long: `Shows what is in force, what was counted, and what is wrong.

The exit code is 0 where all is well; 3 where the agent does not run or waits, a program
is not attached or there is a problem; 2 where nothing is loaded; 1 for other errors.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.status(cmd.OutOrStdout()) },
	}
}

// status prints the status, and returns errDegraded where not all is well.
func (e *env) status(out io.Writer) error {
	var t command.Table
	var well bool
	err := datapath.Look(e.open, func(r *datapath.Reader) (err error) {
		t, well, err = e.showStatus(r)
		return err
	})
	if errors.Is(err, datapath.ErrNotLoaded) && datapath.AgentRuns(e.bpfRoot) {
		return errors.Join(e.showStarting(out), errDegraded)
	}
	if err != nil {
		return err
	}
	if err := e.Print(out, t); err != nil || well {
		return err
	}
	return errDegraded
}

// showStarting prints what an agent says that has pinned nothing yet.
func (e *env) showStarting(out io.Writer) error {
	report, rows, err := e.readReport(true)
	if err != nil {
		return err
	}
	value := struct {
		Agent    bool           `json:"agent"`
		Starting bool           `json:"starting"`
		Contact  *agent.Contact `json:"contact,omitempty"`
		Problems []string       `json:"problems"`
	}{true, true, report.Contact, report.Problems}
	return e.Print(out, command.Table{Rows: append([][]string{{"agent", report.waits(time.Now())}}, rows...), Value: value})
}

func (e *env) showStatus(r *datapath.Reader) (t command.Table, well bool, err error) {
	s, err := r.Status()
	if err != nil {
		return command.Table{}, false, err
	}
	totals, err := r.Totals()
	if err != nil {
		return command.Table{}, false, err
	}
	report, reportRows, err := e.readReport(s.Agent)
	if err != nil {
		return command.Table{}, false, err
	}
	state := "not running: what it programmed stays in force"
	if s.Agent {
		state = report.waits(time.Now())
	}
	rows := [][]string{
		{"agent", state},
		{"version", s.Version},
		{"node", s.Node},
		{"cgroup", s.Cgroup},
		{"object", s.Object[:12]}, // enough to tell one from another
		{"frontends", fmt.Sprint(totals.Frontends)},
		{"tables", fmt.Sprint(totals.Tables)},
		{"backends", fmt.Sprint(totals.Backends)},
		{"writes", fmt.Sprint(s.Writes)},
		{"failures", s.Failures},
	}
	hooks, attached := hookRows(s)
	rows = slices.Concat(rows, hooks, counts("count", s.Counters), counts("drop", s.Drops), reportRows)
	value := struct {
		datapath.Status
		Frontends int            `json:"frontends"`
		Tables    int            `json:"tables"`
		Backends  int            `json:"backends"`
		Sockets   string         `json:"sockets,omitempty"`
		Contact   *agent.Contact `json:"contact,omitempty"`
		Problems  []string       `json:"problems"`
	}{s, totals.Frontends, totals.Tables, totals.Backends, report.Sockets, report.Contact, report.Problems}
	return command.Table{Rows: rows, Value: value}, s.Agent && attached && len(report.Problems) == 0, nil
}

// hookRows returns a row for each program, and whether all are in force.
func hookRows(s datapath.Status) (rows [][]string, all bool) {
	all = true
	add := func(title string, h datapath.Hook) {
		state := "attached"
		switch {
		case !h.Attached:
			state = "NOT ATTACHED"
			all = false
		case h.By != "":
			state += " by " + h.By
		}
		rows = append(rows, []string{title + " " + h.Name, state})
	}
	for _, h := range s.Hooks {
		add("hook", h)
	}
	for _, d := range s.Devices {
		for _, h := range d.Hooks {
			add("device "+d.Name, h)
		}
	}
	return rows, all
}

// agentReport is what the agent says of itself.
type agentReport struct{ agent.Report }

// waits says what a running agent does.
func (r agentReport) waits(now time.Time) string {
	switch c := r.Contact; {
	case c == nil || c.Synced && c.Lost.IsZero():
		return "running"
	case c.Synced:
		return fmt.Sprintf("running, without contact with the API server for %s", now.Sub(c.Lost).Round(time.Second))
	case c.Lost.IsZero():
		return "starting: waits for the API server"
	default:
		return fmt.Sprintf("starting: waits for the API server for %s", now.Sub(c.Lost).Round(time.Second))
	}
}

// readReport returns what the agent reports of itself, as long as it runs: what it wrote
// before may be true no more.
func (e *env) readReport(runs bool) (r agentReport, rows [][]string, err error) {
	if runs {
		r.Report, err = agent.ReadReport(e.state, e.bpfRoot)
	}
	if r.Problems == nil {
		r.Problems = []string{} // an empty list, for programs
	}
	if r.Contact != nil && r.Contact.Lost.IsZero() && r.Contact.Server != "" {
		rows = append(rows, []string{"API server", r.Contact.Server})
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

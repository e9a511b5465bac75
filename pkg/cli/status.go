package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
)

// status is whether this node is well, as it is shown.
type status struct {
	command.Type
	datapath.Status
	// Degraded is why the node is not well, in a few words each; none where it is.
	Degraded  []string           `json:"degraded"`
	Starting  bool               `json:"starting,omitempty"` // an agent runs, and has pinned nothing yet
	Frontends int                `json:"frontends"`
	Tables    int                `json:"tables"`
	Backends  int                `json:"backends"`
	Services  int                `json:"services"` // Service ports
	Avoided   int                `json:"avoided"`  // backends
	InFlight  uint64             `json:"inFlight"`
	Maps      []datapath.MapInfo `json:"maps"`
	Sockets   string             `json:"sockets,omitempty"`
	XDP       map[string]string  `json:"xdp,omitempty"` // devices whose driver repeats nothing, though it should, and why
	Contact   *agent.Contact     `json:"contact,omitempty"`
	Live      *agent.Live        `json:"live,omitempty"`   // of an agent that runs
	Silent    string             `json:"silent,omitempty"` // which agent does not answer, and the state of its process
	LastAlive time.Time          `json:"lastAlive,omitzero"`
	Problems  []string           `json:"problems"`
	Unserved  []string           `json:"unserved,omitempty"` // Services with nothing in force because of a problem of the node
	Drained   []string           `json:"drained,omitempty"`  // backends and nodes, by headgate drain
}

func newStatus(e *env) *cobra.Command {
	var wait time.Duration
	var verbose bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether this node is well, and why not",
		Long: `Shows whether this node is well: the agent and what it follows, the programs of sockets and
devices, what is in force, how full the maps are, what was refused, and what is wrong. What is
not counted is shown as "-", and zeros only with --verbose.

The node is not well, either, where it is its fault that a Service refuses clients: for lack of room in a map, or in
the last minute by a full flow table or without a free source port. The verdict names these Services. That a Service has
no endpoint that is ready, or refuses a client by its source ranges, is what Kubernetes says: headgate service list
and headgate explain show it.

The exit code is 0 where all is well; 3 where the agent does not run or waits, a program
is not attached or there is a problem; 2 where nothing is loaded; 1 for other errors.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.printStatus(cmd.Context(), cmd.OutOrStdout(), wait, verbose)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for the node to be well, such as 30s")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "show every program and every counter, also those that are 0")
	return cmd
}

// lookEvery is how often it is looked whether the node is well now.
const lookEvery = 200 * time.Millisecond

// printStatus prints the status, and returns errDegraded where not all is well.
func (e *env) printStatus(ctx context.Context, out io.Writer, wait time.Duration, verbose bool) error {
	s, err := e.readStatus(ctx)
	for end := time.Now().Add(wait); (err != nil || len(s.Degraded) > 0) && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(min(lookEvery, time.Until(end)))
		s, err = e.readStatus(ctx)
	}
	if err != nil {
		return err
	}
	t := command.Table{Rows: s.screen(time.Now(), e.version), Value: s, Names: []string{"node/" + s.Node}}
	if verbose {
		t.Rows = append(t.Rows, s.details()...)
	}
	if err := e.Print(out, t); err != nil || len(s.Degraded) == 0 {
		return err
	}
	return errDegraded
}

// readStatus reads the maps and asks the agent.
func (e *env) readStatus(ctx context.Context) (s status, err error) {
	s.Type, s.Degraded, s.Problems = command.TypeOf("Status"), []string{}, []string{}
	err = e.look(func(r *datapath.Reader) error { return s.readMaps(r) })
	s.Agent = datapath.AgentRuns(e.bpfRoot)
	if errors.Is(err, datapath.ErrNotLoaded) && s.Agent {
		s.Starting, err = true, nil
	}
	if err != nil {
		return s, err
	}
	if err := s.readAgent(ctx, e); err != nil {
		return s, err
	}
	if d, err := agent.ReadDrained(e.state); err == nil { // else the agent says that it is a problem
		s.Drained = d.Words()
	}
	s.Degraded = s.reasons()
	return s, nil
}

// readMaps reads what the kernel holds.
func (s *status) readMaps(r *datapath.Reader) (err error) {
	if s.Status, err = r.Status(); err != nil {
		return err
	}
	totals, err := r.Totals()
	if err != nil {
		return err
	}
	counts, err := r.CountEntries()
	if err != nil {
		return err
	}
	s.Frontends, s.Tables, s.Backends, s.Services, s.Avoided = totals.Frontends, totals.Tables, totals.Backends, totals.Services, totals.Ejected
	s.InFlight = 0
	for _, b := range r.Backends() {
		s.InFlight += uint64(b.InFlight)
	}
	s.Maps, err = r.Maps(totals, counts)
	return err
}

// readAgent reads what the agent says of itself, as long as it runs: what it said before
// may be true no more.
func (s *status) readAgent(ctx context.Context, e *env) error {
	if !s.Agent {
		var err error
		s.LastAlive, err = datapath.LastAlive(e.bpfRoot)
		return err
	}
	report, err := e.readReport()
	if err != nil {
		return err
	}
	s.Problems, s.Unserved, s.Sockets, s.XDP, s.Contact = report.Problems, report.Unserved, report.Sockets, report.XDP, report.Contact
	var silent agent.Silence
	switch live, err := e.place().AskLive(ctx); { // one of before, or with another directory, does not answer
	case err == nil:
		s.Live = &live
	case errors.As(err, &silent):
		s.Silent = string(silent)
	}
	return nil
}

// readReport returns what the agent of this node has reported; nothing where none runs.
func (e *env) readReport() (r agent.Report, err error) {
	if datapath.AgentRuns(e.bpfRoot) {
		r, err = agent.ReadReport(e.state, e.bpfRoot)
	}
	r.Problems = append([]string{}, r.Problems...) // an empty list, for programs
	return r, err
}

// reasons says why the node is not well.
func (s *status) reasons() []string {
	out := []string{}
	switch {
	case !s.Agent:
		out = append(out, "no agent runs")
	case s.Starting:
		out = append(out, "the agent is starting")
	case s.Silent != "":
		out = append(out, "the agent does not answer")
	case s.Contact != nil && !s.Contact.Lost.IsZero():
		out = append(out, "no contact with the API server")
	case s.Live == nil:
		out = append(out, "the agent does not answer")
	case s.Live.Starting:
		out = append(out, "the agent is starting")
	}
	missing := 0
	for _, hooks := range s.hooks() {
		for _, h := range hooks {
			if !h.Attached {
				missing++
			}
		}
	}
	if missing > 0 {
		out = append(out, plural(missing, "program is", "programs are")+" not attached")
	}
	if len(s.Unserved) > 0 {
		out = append(out, fewOf(s.Unserved)+" cannot be served")
	}
	if s.Live != nil && len(s.Live.Faults) > 0 {
		var all []string
		for _, f := range s.Live.Faults {
			all = append(all, f.Service+" ("+f.Reason+")")
		}
		out = append(out, "clients are refused of "+fewOf(all))
	}
	if len(s.Problems) > 0 {
		out = append(out, plural(len(s.Problems), "problem", "problems"))
	}
	return out
}

// namesShown is how many Services a verdict names.
const namesShown = 3

// fewOf names some of all, and counts the others.
func fewOf(all []string) string {
	if len(all) > namesShown {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:namesShown], " and "), len(all)-namesShown)
	}
	return strings.Join(all, " and ")
}

// hooks are the programs, those of sockets first, then those of each device.
func (s *status) hooks() [][]datapath.Hook {
	all := [][]datapath.Hook{s.Hooks}
	for _, d := range s.Devices {
		all = append(all, d.Hooks)
	}
	return all
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%s %s", grouped(uint64(n)), many)
}

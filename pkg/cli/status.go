package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
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
	Problems  []agent.Problem    `json:"problems"`
	// Refusing are the Service ports that refuse everybody, the one that has refused most first.
	Refusing []refusing `json:"refusing,omitempty"`
	Unserved []string   `json:"unserved,omitempty"` // Services with nothing in force because of a problem of the node
	Drained  []string   `json:"drained,omitempty"`  // backends and nodes, by headgate drain
	// NotChosen are devices on which others may reach the node and whose packets no program sees: "eth1 198.51.100.1/24".
	NotChosen []string `json:"notChosen,omitempty"`
}

// refusing is a Service port without a backend for any client.
type refusing struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
	Refused uint64 `json:"refused"` // for that reason, since the Service came
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
the last minute by a full flow table or without a free source port. The verdict names these Services. That a Service refuses a client by
its source ranges is what Kubernetes says: headgate service list and headgate explain show it.

Faults of Services and backends themselves are no part of the verdict. The line services counts Service ports that refuse
everybody, those that fail more than half of their connections, and backends that clients avoid; it names the worst.
Each problem has a scope, which problem list shows: the verdict counts only problems of the node.

The exit code is 0 where the node is well; 3 where the agent does not run or waits, a program
is not attached or the node has a problem; 2 where nothing is loaded; 1 for other errors.`,
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
	s.Type, s.Degraded, s.Problems = command.TypeOf("Status"), []string{}, []agent.Problem{}
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
	if !s.choosesYet() {
		chosen := map[int]bool{}
		for _, d := range s.Devices {
			chosen[int(d.Index)] = true
		}
		if s.NotChosen, err = netdev.NotChosen(chosen); err != nil {
			return s, err
		}
	}
	s.Degraded = s.reasons()
	return s, nil
}

// choosesYet says whether an agent that starts has not chosen its devices yet.
func (s *status) choosesYet() bool {
	return len(s.Devices) == 0 && (s.Starting || s.Live != nil && s.Live.Starting)
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
	if s.Refusing, err = readRefusing(r, totals.Refusing); err != nil {
		return err
	}
	s.InFlight = 0
	for _, b := range r.Backends() {
		s.InFlight += uint64(b.InFlight)
	}
	s.Maps, err = r.Maps(totals, counts)
	return err
}

// noEndpoint is why a Service refuses everybody, in the word of the datapath.
const noEndpoint = "no_endpoint"

// readRefusing reads about Service ports that refuse everybody.
func readRefusing(r *datapath.Reader, ids []uint32) (all []refusing, err error) {
	for _, id := range ids {
		service, err := r.Service(id)
		if err != nil {
			return nil, err
		}
		drops, err := r.Drops(id)
		if err != nil {
			return nil, err
		}
		all = append(all, refusing{service.String(), noEndpoint, drops[noEndpoint]})
	}
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(-cmp.Compare(all[i].Refused, all[j].Refused), cmp.Compare(all[i].Service, all[j].Service)) < 0
	})
	return all, nil
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
	r.Problems = append([]agent.Problem{}, r.Problems...) // an empty list, for programs
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
	problems := 0
	for _, p := range s.Problems {
		if p.Scope == string(lb.ScopeNode) {
			problems++
		}
	}
	if problems > 0 {
		out = append(out, plural(problems, "problem", "problems"))
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

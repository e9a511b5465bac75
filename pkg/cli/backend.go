package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// backend is a backend as it is shown.
type backend struct {
	at       lb.AddrPort
	said     *lb.Description     // nil where no agent knows it
	ID       uint32              `json:"id"`
	Backend  string              `json:"backend"`
	Services texts[plan.Service] `json:"services"` // Service ports that have it
	Tables   texts[plan.Table]   `json:"tables"`   // that name it
	Pod      string              `json:"pod,omitempty"`
	Node     string              `json:"node,omitempty"`
	Zone     string              `json:"zone,omitempty"`
	State    string              `json:"state"`
	datapath.Load
	ConnectionsPerSecond *rate `json:"connectionsPerSecond,omitempty"`
}

func (b backend) names() []string {
	names := append(addressNames(b.at), fmt.Sprint(b.ID))
	if b.Pod != "" {
		names = append(names, b.Pod, b.said.Pod.Name)
	}
	return names
}

// called returns the Pod that a word names, "" where it names something else of the backend.
func (b backend) called(word string) string {
	if b.said != nil && word == b.said.Pod.Name {
		return b.Pod
	}
	return ""
}

func (b backend) owners() []plan.Service { return b.Services }

var backends = noun[backend]{
	name: "backend", kind: "Backend", short: "addresses that traffic goes to",
	long: `Backends are the addresses that traffic goes to. The kernel knows these, what is in flight and who took no
connections; Pod, node, zone and state are what EndpointSlices say to the agent: where none answers
at --state-dir they are unknown. The states are

  ready        gets connections
  serving      terminates, and gets some only where no backend is ready
  terminating  terminates, and serves no more
  unready      gets none
  draining     of weight 0, or drained by headgate drain: keeps those that it has
  ejected      took none, so that all clients avoid it`,
	words: "{ADDRESS[:PORT[/PROTOCOL]] | [NAMESPACE/]POD | [NAMESPACE/]SERVICE[:PORT]}",
	columns: []column[backend]{
		{title: "ID", of: func(b backend) any { return b.ID }},
		{title: "BACKEND", of: func(b backend) any { return b.Backend }},
		{title: "SERVICE", of: func(b backend) any { return b.Services.texts() }},
		{title: "IN FLIGHT", of: func(b backend) any { return b.InFlight }},
		{title: "RESPONSE", of: func(b backend) any { return known(b.Response) }},
		{title: "HEALTH", of: func(b backend) any { return health(b.Load) }},
		{title: "CONNECTIONS", of: func(b backend) any { return b.Connections }, wide: true},
		{title: "CONN/S", of: func(b backend) any { return b.ConnectionsPerSecond.cell() }, wide: true, rated: true},
		{title: "STATE", of: func(b backend) any { return b.State }, wide: true},
		{title: "POD", of: func(b backend) any { return b.where(b.Pod) }, wide: true},
		{title: "NODE", of: func(b backend) any { return b.where(b.Node) }, wide: true},
		{title: "ZONE", of: func(b backend) any { return b.where(b.Zone) }, wide: true},
		{title: "TABLES", of: func(b backend) any { return b.Tables.texts() }, wide: true},
	},
	read: readBackends, namespaced: true,
}

func newBackend(e *env) *cobra.Command { return backends.command(e) }

func readBackends(s *sight) ([]backend, error) {
	services, err := s.membersOf()
	if err != nil {
		return nil, err
	}
	tables, err := s.tablesOf()
	if err != nil {
		return nil, err
	}
	var said lb.Descriptions
	if s.full {
		said = s.env.described()
	}
	all := make([]backend, 0, length2(s.Backends()))
	for id, at := range s.Backends() {
		b := backend{at: at.At, ID: id, Backend: at.At.String(), Services: services[id], Tables: tables[id], Load: at.Load}
		b.ConnectionsPerSecond = s.rates.of(b.Backend, b.Connections)
		b.describe(said.Of(b.at))
		all = append(all, b)
	}
	return all, nil
}

// unknown stands for what only an agent knows, where none says it.
const unknown = "unknown"

// described returns what the agent says of backends, nothing where none answers.
func (e *env) described() lb.Descriptions {
	said, err := agent.AskBackends(context.Background(), e.state)
	if err != nil {
		return nil
	}
	return said
}

// describe takes what is said of the backend, nil for nothing. That it is ejected the kernel knows.
func (b *backend) describe(d *lb.Description) {
	b.State = unknown
	if d != nil {
		b.said, b.Node, b.Zone, b.State = d, d.Node, d.Zone, string(d.State)
		b.Pod = podName(d)
	}
	if b.Ejected > 0 {
		b.State = "ejected"
	}
}

// podName returns the name of the Pod that a backend is, "" where that is not known.
func podName(d *lb.Description) string {
	if d == nil || d.Pod == (lb.PodName{}) {
		return ""
	}
	return d.Pod.String()
}

// where returns what is said of where the backend is.
func (b backend) where(name string) any {
	switch {
	case b.said == nil:
		return unknown
	case name == "":
		return nil
	default:
		return name
	}
}

// membersOf returns the Service ports that have a backend, by its ID.
func (s *sight) membersOf() (map[uint32][]plan.Service, error) {
	tables := map[uint32]members{}
	err := s.Frontends(func(_ lb.AddrPort, f plan.Frontend) error {
		tables[f.Service] = tables[f.Service].with(f.Members)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := map[uint32][]plan.Service{}
	services, err := s.Services()
	if err != nil {
		return nil, err
	}
	for service := range services { // by ID, so that their order is one
		name, err := s.Service(service)
		if err != nil {
			return nil, err
		}
		ids, err := tables[service].ids(s.Reader)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			out[id] = append(out[id], name)
		}
	}
	return out, nil
}

// members is the tables of all backends that a Service port has: one for each family.
type members []plan.Table

func (m members) with(t plan.Table) members {
	if t.Size == 0 || slices.Contains(m, t) {
		return m
	}
	return append(m, t)
}

// ids returns the backends, in order.
func (m members) ids(r *datapath.Reader) ([]uint32, error) {
	var all []uint32
	for _, t := range m {
		ids, err := r.Slots(t)
		if err != nil {
			return nil, err
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// tablesOf returns the tables that name a backend, by its ID.
func (s *sight) tablesOf() (map[uint32][]plan.Table, error) {
	named, err := s.namedTables()
	if err != nil {
		return nil, err
	}
	out := map[uint32][]plan.Table{}
	for _, t := range slices.SortedFunc(maps.Keys(named), plan.Table.Compare) {
		ids, err := members{t}.ids(s.Reader)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			out[id] = append(out[id], t)
		}
	}
	return out, nil
}

// known returns a duration, nil for 0, which stands for what nobody knows.
func known(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d
}

// healthy is the health of a backend that has not failed.
const healthy = "ok"

// health says whether a backend takes connections, as far as this node knows.
func health(l datapath.Load) string {
	switch {
	case l.Ejected > 0:
		return "ejected for " + l.Ejected.Round(time.Second).String()
	case l.EjectedByOne > 0:
		return "avoided for " + l.EjectedByOne.Round(time.Second).String() + " by the client that failed last"
	case l.Failures > 0:
		return fmt.Sprintf("%d failed", l.Failures)
	default:
		return healthy
	}
}

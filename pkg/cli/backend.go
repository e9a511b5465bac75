package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

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
	trafficRates
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
		{title: "FAILED", of: func(b backend) any { return b.Failed.Sum() }, wide: true},
		{title: "FAILED/S", of: func(b backend) any { return b.FailedPerSecond.cell() }, wide: true, rated: true},
		{title: "BYTES TO", of: func(b backend) any { return size(b.BytesTo) }, wide: true},
		{title: "BYTES FROM", of: func(b backend) any { return size(b.BytesFrom) }, wide: true},
		{title: "PACKETS TO", of: func(b backend) any { return b.PacketsTo }, wide: true},
		{title: "PACKETS FROM", of: func(b backend) any { return b.PacketsFrom }, wide: true},
		{title: "TO/S", of: func(b backend) any { return b.BytesToPerSecond.size() }, wide: true, rated: true},
		{title: "FROM/S", of: func(b backend) any { return b.BytesFromPerSecond.size() }, wide: true, rated: true},
		{title: "STATE", of: func(b backend) any { return b.State }, wide: true},
		{title: "POD", of: func(b backend) any { return b.where(b.Pod) }, wide: true},
		{title: "NODE", of: func(b backend) any { return b.where(b.Node) }, wide: true},
		{title: "ZONE", of: func(b backend) any { return b.where(b.Zone) }, wide: true},
		{title: "TABLES", of: func(b backend) any { return b.Tables.texts() }, wide: true},
	},
	read: readBackends, namespaced: true,
}

func newBackend(e *env) *cobra.Command { return backends.command(e) }

func readBackends(s *sight, do func(*backend) error) error {
	services, err := s.membersOf()
	if err != nil {
		return err
	}
	tables, err := s.tablesOf()
	if err != nil {
		return err
	}
	var said *lb.Told
	if s.full {
		said = s.env.told(s.namedBackend()...)
	}
	for id, at := range s.Backends() {
		b := backend{at: at.At, ID: id, Backend: at.At.String(), Services: services.of(id), Tables: tables.of(id), Load: at.Load}
		b.ConnectionsPerSecond = s.rates.of(b.Backend, b.Connections)
		b.trafficRates = s.rates.ofTraffic(b.Backend, b.Traffic)
		b.describe(said.Of(b.at))
		if err := do(&b); err != nil {
			return err
		}
	}
	return nil
}

// unknown stands for what only an agent knows, where none says it. That a backend is ejected the kernel says.
const (
	unknown = "unknown"
	ejected = "ejected"
)

// namedBackend returns the words by which the agent knows the backends that are wanted, none for all.
func (s *sight) namedBackend() []string {
	if s.wanted.word == "" {
		return nil
	}
	if id, err := strconv.ParseUint(s.wanted.word, 10, 32); err == nil { // no agent knows IDs
		return []string{s.wanted.word, s.Backend(uint32(id)).At.Addr.String()}
	}
	return []string{s.wanted.word}
}

// described returns what the agent says of backends, of all or of those with some names; nothing where none answers.
func (e *env) described(words ...string) *lb.Told {
	said, _ := e.place().AskBackends(e.asking(), words...)
	return said
}

// told does so for who reads a list, where what is missing has to be said.
func (e *env) told(words ...string) *lb.Told {
	said, err := e.place().AskBackends(e.asking(), words...)
	if err == nil {
		return said
	}
	e.complain(err, "pods, nodes, zones and states of backends are missing")
	return nil
}

// complain says once that the agent does not answer in time, and what follows for who reads.
func (e *env) complain(err error, so string) {
	if errors.Is(err, context.DeadlineExceeded) && e.complaints != nil && !e.late {
		e.late = true
		fmt.Fprintf(e.complaints, "%v; %s\n", err, so)
	}
}

// describe takes what is said of the backend, nil for nothing. That it is ejected the kernel knows.
func (b *backend) describe(d *lb.Description) {
	b.State = unknown
	if d != nil {
		b.said, b.Node, b.Zone, b.State = d, d.Node, d.Zone, string(d.State)
		b.Pod = podName(d)
	}
	if b.Ejected > 0 {
		b.State = ejected
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

// users is what has backends: Service ports, or tables. There may be very many backends, and most have one of each.
type users[T any] struct {
	all  []T
	uses []use
}

// use is that something has a backend.
type use struct {
	backend uint32 // ID
	by      int32  // place among all
}

// add says what has backends, after all that come before it.
func (u *users[T]) add(one T, backends []uint32) {
	for _, id := range backends {
		u.uses = append(u.uses, use{id, int32(len(u.all))})
	}
	u.all = append(u.all, one)
}

// sort is to be called once all are added.
func (u *users[T]) sort() {
	slices.SortFunc(u.uses, func(a, b use) int { return cmp.Or(cmp.Compare(a.backend, b.backend), cmp.Compare(a.by, b.by)) })
}

// of returns those that have a backend, in the order in which they were added.
func (u *users[T]) of(backend uint32) (out []T) {
	i, _ := slices.BinarySearchFunc(u.uses, backend, func(a use, id uint32) int { return cmp.Compare(a.backend, id) })
	for ; i < len(u.uses) && u.uses[i].backend == backend; i++ {
		out = append(out, u.all[u.uses[i].by])
	}
	return out
}

// membersOf returns the Service ports that have backends.
func (s *sight) membersOf() (out users[plan.Service], err error) {
	tables := map[uint32]members{}
	err = s.Frontends(func(_ lb.AddrPort, f plan.Frontend) error {
		tables[f.Service] = tables[f.Service].with(f.Members)
		return nil
	})
	if err != nil {
		return out, err
	}
	services, err := s.Services()
	if err != nil {
		return out, err
	}
	for service := range services { // by ID, so that their order is one
		name, err := s.Service(service)
		if err != nil {
			return out, err
		}
		ids, err := tables[service].ids(s.Reader)
		if err != nil {
			return out, err
		}
		out.add(name, ids)
	}
	out.sort()
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

// tablesOf returns the tables that name backends, where all is asked for that is known of these.
func (s *sight) tablesOf() (out users[plan.Table], err error) {
	if !s.full {
		return out, nil
	}
	named := map[plan.Table]bool{}
	err = s.Frontends(func(_ lb.AddrPort, f plan.Frontend) error {
		for _, t := range f.Tables() {
			if t.Size > 0 {
				named[t] = true
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	for _, t := range slices.SortedFunc(maps.Keys(named), plan.Table.Compare) {
		ids, err := members{t}.ids(s.Reader)
		if err != nil {
			return out, err
		}
		out.add(t, ids)
	}
	out.sort()
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

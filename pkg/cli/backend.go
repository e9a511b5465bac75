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
	ID       uint32              `json:"id"`
	Backend  string              `json:"backend"`
	Services texts[plan.Service] `json:"services"` // Service ports that have it
	Tables   texts[plan.Table]   `json:"tables"`   // that name it
	described
	// ByService is what is said by Service port, where Services differ. The best of it is what is said of the backend.
	ByService []describedFor `json:"byService,omitempty"`
	datapath.Load
	ConnectionsPerSecond *rate `json:"connectionsPerSecond,omitempty"`
	trafficRates
}

func (b backend) names() []string {
	return append(append(addressNames(b.at), fmt.Sprint(b.ID)), b.pods()...)
}

// pods returns the full and the short name of its Pod, of each Service where these differ.
func (b *backend) pods() (names []string) {
	names = b.pod(nil)
	for i := range b.ByService {
		names = b.ByService[i].pod(names)
	}
	return names
}

// called returns the Pod that a word names, "" where it names something else of the backend.
func (b backend) called(word string) string {
	names := b.pods()
	if i := slices.Index(names, word); i%2 == 1 {
		return names[i-1]
	}
	return ""
}

func (b backend) owners() []plan.Service { return b.Services }

func (b *backend) parts() [][]string { return parts("failed", b.Failed.ByReason()) }

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
  ejected      took none, so that all clients avoid it

Each Service has states of its own: a backend of several Services has a line for each if they differ.
HEALTH says what this node has seen of it:

  ejected for 5s  as above
  avoided for 5s  by the client that failed last
  3 failed        so many connections in a row
  unready, ...    nothing of that, and the state is not ready
  unused          no connection from this node
  no failures     used without a failure; no agent says the state
  ok              ready, and used without a failure`,
	words: "{ADDRESS[:PORT[/PROTOCOL]] | [NAMESPACE/]POD | [NAMESPACE/]SERVICE[:PORT]}",
	columns: []column[backend]{
		{title: "ID", of: func(b backend) any { return b.ID }},
		{title: "BACKEND", of: func(b backend) any { return b.Backend }},
		{title: "SERVICE", of: func(b backend) any { return b.Services.texts() }},
		{title: "IN FLIGHT", of: func(b backend) any { return b.InFlight }},
		{title: "RESPONSE", of: func(b backend) any { return response(b.Load) }},
		{title: "HEALTH", of: func(b backend) any { return b.each(func(d described) any { return d.health(b.Load) }) }},
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
		{title: "STATE", of: func(b backend) any { return b.each(func(d described) any { return d.State }) }, wide: true},
		{title: "POD", of: func(b backend) any { return b.each(func(d described) any { return d.where(d.Pod) }) }, wide: true},
		{title: "NODE", of: func(b backend) any { return b.each(func(d described) any { return d.where(d.Node) }) }, wide: true},
		{title: "ZONE", of: func(b backend) any { return b.each(func(d described) any { return d.where(d.Zone) }) }, wide: true},
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
	said := s.env.told(s.namedBackend(&services)...)
	for id, at := range s.Backends() {
		b := backend{at: at.At, ID: id, Backend: at.At.String(), Services: services.of(id), Tables: tables.of(id), Load: at.Load}
		b.ConnectionsPerSecond = s.rates.of(b.Backend, b.Connections)
		b.trafficRates = s.rates.ofTraffic(b.Backend, b.Traffic)
		b.describeFor(said)
		if err := do(&b); err != nil {
			return err
		}
	}
	return nil
}

// fewAddresses is how many are asked for by name: they stand in one line of a request.
const fewAddresses = 200

// namedBackend returns the words by which the agent knows the backends that are wanted, none for all. Those of a Service
// it is asked for by their addresses: other Services may have them, too.
func (s *sight) namedBackend(services *users[plan.Service]) []string {
	if s.wanted.word == "" {
		return nil
	}
	words := []string{s.wanted.word}
	if id, err := strconv.ParseUint(s.wanted.word, 10, 32); err == nil { // no agent knows IDs
		words = append(words, s.Backend(uint32(id)).At.Addr.String())
	}
	for _, use := range services.uses {
		if !s.wanted.owns(services.all[use.by]) {
			continue
		}
		if len(words) > fewAddresses {
			return nil
		}
		words = append(words, s.Backend(use.backend).At.Addr.String())
	}
	return words
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
	e.complain(err, "READY, states, Pods, nodes and zones of backends are unknown")
	return nil
}

// complain says once that the agent does not answer in time, and what follows for who reads.
func (e *env) complain(err error, so string) {
	if errors.Is(err, context.DeadlineExceeded) && e.complaints != nil && e.late.CompareAndSwap(false, true) {
		fmt.Fprintf(e.complaints, "%v; %s\n", err, so)
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

// lowerBound is a duration that is a lower bound.
type lowerBound time.Duration

// String implements fmt.Stringer.
func (l lowerBound) String() string { return "≥" + time.Duration(l).String() }

// response returns the response time of a backend as a cell, nil if it is not known.
func response(l datapath.Load) any {
	switch {
	case l.Response == 0:
		return nil
	case l.ResponseAtLeast:
		return lowerBound(l.Response)
	default:
		return l.Response
	}
}

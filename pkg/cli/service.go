package cli

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// service is a Service port as it is shown.
type service struct {
	id        uint32
	port      plan.Service
	members   members
	ids       []uint32           // of its backends
	judged    *judgment          // of its backends, nil where no agent says how they are
	Namespace string             `json:"namespace"`
	Service   string             `json:"service"`
	Port      string             `json:"port,omitempty"` // its name
	Protocol  string             `json:"protocol"`
	Algorithm string             `json:"algorithm"`
	Frontends texts[lb.AddrPort] `json:"frontends"`
	Ready     *int               `json:"ready,omitempty"` // backends that are ready and not ejected; nil where no agent says it
	Backends  int                `json:"backends"`        // draining ones, too
	Avoided   int                `json:"avoided"`         // backends that clients avoid
	States    states             `json:"backendStates,omitempty"`
	InFlight  uint32             `json:"inFlight"` // of its backends
	// InFlightShared is the part of it at backends that other Service ports have, too: the kernel counts by backend.
	InFlightShared uint32            `json:"inFlightShared,omitempty"`
	Refused        uint64            `json:"refused"`
	Drops          map[string]uint64 `json:"drops,omitempty"` // refusals by reason

	Connections uint64 `json:"connections"` // that began on this node
	// InZone is how many of the connections that began with its backends went to those in the zone
	// of this node; nil where nothing began, or nobody knows zones.
	InZone *percent `json:"inZonePercent,omitempty"`
	datapath.Traffic
	ConnectTimes *connectTimes `json:"connectTimes,omitempty"` // of sockets that are closed

	ConnectionsPerSecond *rate `json:"connectionsPerSecond,omitempty"`
	RefusedPerSecond     *rate `json:"refusedPerSecond,omitempty"`
	trafficRates

	RefusedByReason map[string]rate `json:"refusedPerSecondByReason,omitempty"` // in a second, without zeros
}

func (s service) names() []string { return []string{s.port.String()} }

func (s service) owners() []plan.Service { return []plan.Service{s.port} }

func (s *service) parts() [][]string {
	return append(parts("refused", s.Drops), parts("failed", s.Failed.ByReason())...)
}

var services = noun[service]{
	name: "service", kind: "Service", short: "Service ports, with how their backends are", words: "[NAMESPACE/]SERVICE[:PORT]",
	long: `Service ports of this node, and how their backends are. READY 2/3: two of three backends are ready in the
EndpointSlices of this Service, and not ejected. -/3: no agent says it. IN FLIGHT ≤7: at most 7, since
other Service ports have some of the backends, and the kernel counts by backend.`,
	columns: []column[service]{
		{title: "NAMESPACE", of: func(s service) any { return s.Namespace }},
		{title: "SERVICE", of: func(s service) any { return s.Service }},
		{title: "PORT", of: func(s service) any { return s.portName() }},
		{title: "ALGORITHM", of: func(s service) any { return s.Algorithm }},
		{title: "READY", of: func(s service) any { return s.readiness() }},
		{title: "AVOIDED", of: func(s service) any { return s.Avoided }},
		{title: "CONNECTIONS", of: func(s service) any { return s.Connections }},
		{title: "CONN/S", of: func(s service) any { return s.ConnectionsPerSecond.cell() }, rated: true},
		{title: "IN FLIGHT", of: func(s service) any { return s.flights() }},
		{title: "REFUSED", of: func(s service) any { return s.Refused }},
		{title: "REFUSED/S", of: func(s service) any { return s.RefusedPerSecond.cell() }, rated: true},
		{title: "FAILED", of: func(s service) any { return s.Failed.Sum() }},
		{title: "FAILED/S", of: func(s service) any { return s.FailedPerSecond.cell() }, wide: true, rated: true},
		{title: "STATES", of: func(s service) any { return s.States.cell() }, wide: true},
		{title: "IN ZONE", of: func(s service) any { return cellOf(s.InZone) }, wide: true},
		{title: "BYTES TO", of: func(s service) any { return size(s.BytesTo) }, wide: true},
		{title: "BYTES FROM", of: func(s service) any { return size(s.BytesFrom) }, wide: true},
		{title: "PACKETS TO", of: func(s service) any { return s.PacketsTo }, wide: true},
		{title: "PACKETS FROM", of: func(s service) any { return s.PacketsFrom }, wide: true},
		{title: "TO/S", of: func(s service) any { return s.BytesToPerSecond.size() }, wide: true, rated: true},
		{title: "FROM/S", of: func(s service) any { return s.BytesFromPerSecond.size() }, wide: true, rated: true},
		{title: "CONNECT", of: func(s service) any { return s.ConnectTimes.cell() }, wide: true},
		{title: "FRONTENDS", of: func(s service) any { return s.Frontends.texts() }, wide: true},
	},
	read: eachService, namespaced: true,
}

func newService(e *env) *cobra.Command { return services.command(e) }

// portName is the port as people call it: http/TCP, or TCP where it has no name.
func (s service) portName() string {
	if s.Port == "" {
		return s.Protocol
	}
	return s.Port + "/" + s.Protocol
}

// readiness is how many of the backends are ready and not ejected, as n/m, or -/m if no agent says it. It sorts by n.
type readiness int64

func (s *service) readiness() readiness {
	ready := -1
	if s.Ready != nil {
		ready = *s.Ready
	}
	return readiness(ready)<<32 | readiness(s.Backends)
}

func (r readiness) String() string {
	all := "/" + strconv.Itoa(int(uint32(r)))
	if r < 0 {
		return "-" + all
	}
	return strconv.Itoa(int(r>>32)) + all
}

// flights is a number of connections, and whether it is one at most since other Service ports share backends.
type flights uint64

func (s *service) flights() flights {
	f := flights(s.InFlight) << 1
	if s.InFlightShared > 0 {
		f |= 1
	}
	return f
}

func (f flights) String() string { return f.bound() + strconv.Itoa(int(f>>1)) }

// bound stands before the number.
func (f flights) bound() string {
	if f&1 != 0 {
		return "≤"
	}
	return ""
}

// eachService calls do with all Service ports, in order.
func eachService(s *sight, do func(*service) error) error {
	all, err := readSome(s, func(id uint32) bool {
		if s.wanted.everything() {
			return true
		}
		port, err := s.Service(id)
		return err != nil || s.wanted.wants(service{port: port}) // an error comes again, and is told
	})
	judge(s, all)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, compareServices)
	for i := range all {
		one := &all[i]
		one.Ready, one.States, one.InZone = one.judged.ready(), one.judged.states(), one.judged.share()
		if err := do(one); err != nil {
			return err
		}
	}
	return nil
}

// readServices returns the Service ports.
func readServices(s *sight) ([]service, error) {
	return readSome(s, func(uint32) bool { return true })
}

// none is the place of a Service port of which no frontend was read yet.
const none = -1

// readSome returns the Service ports whose IDs are wanted.
func readSome(s *sight, wanted func(id uint32) bool) ([]service, error) {
	ids, err := s.Services()
	if err != nil {
		return nil, err
	}
	at := map[uint32]int{} // by ID
	for id := range ids {
		if wanted(id) {
			at[id] = none
		}
	}
	all := make([]service, 0, len(at))
	owners := make(owners, s.BackendIDs())
	err = s.Frontends(func(addr lb.AddrPort, f plan.Frontend) error {
		i, ok := at[f.Service]
		if !ok {
			ids, err := s.Slots(f.Members)
			owners.add(ids)
			return err
		}
		if i == none {
			i, at[f.Service] = len(all), len(all)
			all = append(all, service{id: f.Service, Algorithm: f.Algorithm().String()})
		}
		all[i].members = all[i].members.with(f.Members)
		all[i].Frontends = append(all[i].Frontends, addr)
		return nil
	})
	slices.SortStableFunc(all, func(a, b service) int { return cmp.Compare(a.id, b.id) }) // so that maps are read from their beginnings on
	for i := range all {
		if err == nil {
			err = all[i].read(s)
			owners.add(all[i].ids)
		}
	}
	for i := range all {
		all[i].InFlightShared = owners.shared(s, all[i].ids)
	}
	return all, err
}

// owners is how many Service ports have a backend, by its ID. Two stands for more.
type owners []uint8

// add adds a Service port with its backends. One whose numbers are not wanted may be added once for each of its frontends.
func (o owners) add(backends []uint32) {
	for _, id := range backends {
		if id < uint32(len(o)) && o[id] < 2 { // else a table of another moment
			o[id]++
		}
	}
}

// shared returns how many connections are in flight to those backends that several Service ports have.
func (o owners) shared(s *sight, backends []uint32) (sum uint32) {
	for _, id := range backends {
		if id < uint32(len(o)) && o[id] > 1 {
			sum += s.Backend(id).InFlight
		}
	}
	return sum
}

func compareServices(a, b service) int {
	return cmp.Or(a.port.Compare(b.port.ServiceName), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}

// read reads what the maps say of a Service port.
func (s *service) read(r *sight) (err error) {
	if s.port, err = r.Service(s.id); err != nil {
		return err
	}
	s.Namespace, s.Service, s.Port, s.Protocol = s.port.Namespace, s.port.Name, s.port.Port, s.port.Protocol.String()
	slices.SortFunc(s.Frontends, lb.AddrPort.Compare)
	if s.ids, err = s.members.ids(r.Reader); err != nil {
		return err
	}
	for _, id := range s.ids {
		b := r.Backend(id)
		s.Backends++
		s.InFlight += b.InFlight
		if b.Ejected > 0 {
			s.Avoided++
		}
	}
	if s.Drops, err = r.Drops(s.id); err != nil {
		return err
	}
	for _, n := range s.Drops {
		s.Refused += n
	}
	t, err := r.Traffic(s.id)
	if err != nil {
		return err
	}
	s.Connections, s.Traffic, s.ConnectTimes = t.Connections, t.Traffic, newConnectTimes(&t.ConnectTimes)
	if r.rates != nil {
		name := s.port.String()
		s.trafficRates = r.rates.ofTraffic(name, s.Traffic)
		s.ConnectionsPerSecond = r.rates.of(name, s.Connections)
		s.RefusedPerSecond = r.rates.of("refused of "+name, s.Refused)
		s.RefusedByReason = r.rates.parts(name, s.Drops, s.RefusedPerSecond)
	}
	return nil
}

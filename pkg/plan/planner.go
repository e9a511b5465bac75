package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/maglev"
)

// Planner knows what the maps hold and what they should hold. Each change of a
// Service costs what that Service has, however many others there are.
//
// Operations must be applied in the order in which the planner returned them,
// each at least once. A Planner is not safe for concurrent use.
type Planner struct {
	limits    uses
	defaults  lb.Policy // what Services get that leave it open
	pool      *pool
	frontends map[lb.AddrPort]*entry
	owned     map[lb.ServiceName][]lb.AddrPort               // what each Service has in force
	wanting   map[lb.AddrPort]map[lb.ServiceName]lb.Frontend // refused: a better claim has it
	displaced map[lb.ServiceName]bool                        // to be Set again: something was taken, or is free
	addresses map[netip.Addr]*address
	node      map[netip.Addr]AddressKind // addresses of this node, see SetNodeAddresses
	losses    []Loss
	cidrs     []netip.Prefix
	ranges    sourceRanges
	peers     *peers
	// strayRanges are in the maps though no frontend uses them.
	strayRanges []DeleteSourceRange
	now         time.Time // as last told
	draining    map[lb.AddrPort]*drain
	formers     map[lb.AddrPort]*former
	formerOf    map[lb.ServiceName][]lb.AddrPort // by Service, in the order in which it gave them up
	linger      time.Duration                    // see SetLinger
	lingering   map[lb.ServiceName]time.Time     // when the first former frontend of each is due, zero once Tick has said so
	held        map[lb.ServiceName]time.Time     // see hold
	shared      shared
	stays       func(lb.ServiceName) bool // nil for none, see Resume
}

// entry is a frontend in force.
type entry struct {
	claim   lb.Claim
	adopted bool // and not Set since: the age of its owner is not known
	value   Frontend
	tables  [numTables]*tableRef // in the order of Frontend.Tables, nil for empty ones
	ranges  []netip.Prefix       // of the clients that may use it, nil for everybody
}

// members returns the table of all backends that the Service still has.
func (e *entry) members() *tableRef { return e.tables[membersTable] }

// Loss is a backend that a frontend no longer knows: whoever talks to it by that frontend
// waits in vain. If the backend is the frontend itself, that has its first backend, and UDP sockets
// that wait for one can have it.
type Loss struct {
	Frontend lb.AddrPort
	Backend  lb.AddrPort
}

// address is an address in force, with what asks for it.
type address struct {
	node       AddressKind // NodeAddress, LoopbackAddress, OwnAddress or nothing
	clusterIPs int         // frontends that make it a ServiceAddress
	others     int         // frontends that make it a FrontendAddress
	written    AddressKind
}

// New returns a planner of empty maps, of which all Services together use no more
// entries than limits; a limit of 0 is none.
func New(limits Sizes) *Planner {
	return &Planner{
		limits:    limitsOf(limits),
		defaults:  lb.Policy{Algorithm: lb.Random, Steering: lb.Steering{PassiveHealth: lb.SwitchOn}},
		pool:      newPool(),
		frontends: map[lb.AddrPort]*entry{},
		owned:     map[lb.ServiceName][]lb.AddrPort{},
		wanting:   map[lb.AddrPort]map[lb.ServiceName]lb.Frontend{},
		displaced: map[lb.ServiceName]bool{},
		addresses: map[netip.Addr]*address{},
		ranges:    sourceRanges{},
		peers:     newPeers(),
		draining:  map[lb.AddrPort]*drain{},
		formers:   map[lb.AddrPort]*former{},
		formerOf:  map[lb.ServiceName][]lb.AddrPort{},
		lingering: map[lb.ServiceName]time.Time{},
		held:      map[lb.ServiceName]time.Time{},
		shared:    shared{demands: newDemands(), cramped: map[lb.ServiceName]lb.Problem{}},
	}
}

// SetDefaults says what Services get that leave it open: unless said otherwise lb.Random,
// and ejected backends are avoided. It is for the time before the first Set.
func (p *Planner) SetDefaults(policy lb.Policy) { p.defaults = policy.Or(p.defaults) }

// SetHashKey says by which key tables for hashes are filled: the same on all
// nodes. It is for the time before the first Set.
func (p *Planner) SetHashKey(key maglev.Key) { p.pool.key = key }

// Services returns the Services that have frontends in force, or had, sorted.
func (p *Planner) Services() []lb.ServiceName {
	names := slices.AppendSeq(slices.Collect(maps.Keys(p.owned)), maps.Keys(p.formerOf))
	slices.SortFunc(names, lb.ServiceName.Compare)
	return slices.Compact(names)
}

// Has says whether a Service has frontends in force.
func (p *Planner) Has(name lb.ServiceName) bool { return len(p.owned[name]) > 0 }

// AreFree says whether no Service has any of these frontends in force.
func (p *Planner) AreFree(frontends []lb.Frontend) bool {
	return !slices.ContainsFunc(frontends, func(f lb.Frontend) bool { return p.frontends[f.AddrPort] != nil })
}

// Set makes the frontends of a Service what is given; none ends the Service.
// Of a frontend that several Services want the best claim has it (lb.Claim),
// whichever was Set first. The others wait for it: Conflicts says so, and
// TakeDisplaced which of them have lost something to this one. Where the limits leave
// no room for all, the Services that use most are refused (Shortages).
//
// With an error the Service is not as given, and is to be Set again when there is room:
// it is ErrLater, or the lb.Problem that Shortages has as well. The operations are to
// be applied all the same: they are what others give up.
func (p *Planner) Set(name lb.ServiceName, frontends []lb.Frontend) ([]Op, error) {
	p.Ask(name, frontends)
	return p.SetAsked(name, frontends)
}

// SetAsked is Set of frontends of which Ask has been told last.
func (p *Planner) SetAsked(name lb.ServiceName, frontends []lb.Frontend) ([]Op, error) {
	ops := p.share()
	delete(p.displaced, name)
	delete(p.shared.cramped, name)
	switch r := p.shared.rations[name]; {
	case r.refused:
		return ops, p.shortage(name, r)
	case r.reduced:
		frontends = withUsualTables(frontends)
	}
	p.hold(name, frontends)
	c := p.begin(name)
	c.lingers = p.linger > 0
	c.rewrites = p.rewritable(name, frontends)
	for _, f := range frontends {
		c.want(f)
	}
	if err := c.lacksRoom(); err != nil {
		c.undo()
		return ops, err
	}
	c.finish()
	return append(ops, c.ops...), nil
}

// MaxServiceCIDRs is how many prefixes the datapath compares an address with.
const MaxServiceCIDRs = 8

// SetServiceCIDRs says which prefixes belong to Services: their addresses are
// refused as long as no Service has them. More than MaxServiceCIDRs are an
// error, and change nothing.
func (p *Planner) SetServiceCIDRs(prefixes []netip.Prefix) ([]Op, error) {
	prefixes = slices.Clone(prefixes)
	for i := range prefixes {
		prefixes[i] = prefixes[i].Masked()
	}
	slices.SortFunc(prefixes, comparePrefixes)
	prefixes = slices.Compact(prefixes)
	if len(prefixes) > MaxServiceCIDRs {
		return nil, lb.Problem{
			Object: "ServiceCIDRs",
			Value:  fmt.Sprint(prefixes),
			Reason: fmt.Sprintf("%d prefixes, of which the datapath knows %d at most", len(prefixes), MaxServiceCIDRs),
			Remedy: "join neighbouring prefixes",
		}
	}
	if slices.Equal(prefixes, p.cidrs) {
		return nil, nil
	}
	p.cidrs = prefixes
	return []Op{PutServiceCIDRs{Prefixes: prefixes}}, nil
}

// ServiceCIDRs returns the prefixes that belong to Services, nil for none.
func (p *Planner) ServiceCIDRs() []netip.Prefix { return p.cidrs }

// countFrontend adds n frontends of a kind to an address. NodePorts have none.
func (p *Planner) countFrontend(a netip.Addr, kind lb.FrontendKind, n int) {
	if a.IsUnspecified() {
		return
	}
	if p.addresses[a] == nil {
		p.addresses[a] = &address{}
	}
	if kind == lb.ClusterIP {
		p.addresses[a].clusterIPs += n
	} else {
		p.addresses[a].others += n
	}
}

// writeAddress appends what brings an address up to date.
func (p *Planner) writeAddress(a netip.Addr, ops *[]Op) {
	e := p.addresses[a]
	if e == nil {
		return
	}
	kind := e.node
	if e.clusterIPs > 0 {
		kind |= ServiceAddress
	}
	if e.others > 0 {
		kind |= FrontendAddress
	}
	switch {
	case kind == 0:
		delete(p.addresses, a)
		if e.written != 0 {
			*ops = append(*ops, DeleteAddress{Addr: a})
			p.pool.retiredAddresses[a] = p.pool.time
		}
	case kind != e.written:
		delete(p.pool.retiredAddresses, a)
		*ops = append(*ops, PutAddress{Addr: a, Kind: kind})
		e.written = kind
	}
}

// TakeLosses returns what was lost by what was planned since the last call.
func (p *Planner) TakeLosses() []Loss {
	out := p.losses
	p.losses = nil
	return out
}

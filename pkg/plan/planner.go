package plan

import (
	"cmp"
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
	limits    Sizes
	algorithm lb.Algorithm // of Services that name none
	passive   bool         // whether Services that do not say avoid suspects
	pool      *pool
	frontends map[lb.AddrPort]*entry
	owned     map[lb.ServiceName][]lb.AddrPort               // what each Service has in force
	wanting   map[lb.AddrPort]map[lb.ServiceName]lb.Frontend // refused: another Service has it
	addresses map[netip.Addr]*address
	// deleted is set where an address has left the hash since the last
	// grace period: the kernel gives its element to the next that comes,
	// though a program may still read it.
	deleted   bool
	deletedAt Mark // when that was the last time
	losses    []Loss
	cidrs     []netip.Prefix
	ranges    sourceRanges
	// strayRanges are in the maps though no frontend uses them.
	strayRanges []DeleteSourceRange
	now         time.Time // as last told
	draining    map[lb.AddrPort]*drain
}

// entry is a frontend in force.
type entry struct {
	owner    lb.ServiceName
	value    Frontend
	service  Service
	internal *tableRef
	external *tableRef
	known    *tableRef
	wider    [2]*tableRef
	ranges   []netip.Prefix // of the clients that may use it, nil for everybody
}

// Loss is a backend that a frontend no longer knows: whoever talks to it by
// that frontend waits in vain.
type Loss struct {
	Frontend lb.AddrPort
	Backend  lb.AddrPort
}

// address is an address in force, with what asks for it.
type address struct {
	node       AddressKind // NodeAddress, LoopbackAddress or nothing
	clusterIPs int         // frontends that make it a ServiceAddress
	others     int         // frontends that make it a FrontendAddress
	written    AddressKind
}

// New returns a planner of empty maps, which refuses what would use more
// entries than limits; a limit of 0 is none.
func New(limits Sizes) *Planner {
	return &Planner{
		limits:    limits,
		algorithm: lb.Random,
		passive:   true,
		pool:      newPool(),
		frontends: map[lb.AddrPort]*entry{},
		owned:     map[lb.ServiceName][]lb.AddrPort{},
		wanting:   map[lb.AddrPort]map[lb.ServiceName]lb.Frontend{},
		addresses: map[netip.Addr]*address{},
		ranges:    sourceRanges{},
		draining:  map[lb.AddrPort]*drain{},
	}
}

// SetDefault says which algorithm Services get that name none: lb.Random unless
// said otherwise. It is for the time before the first Set.
func (p *Planner) SetDefault(a lb.Algorithm) {
	p.algorithm = cmp.Or(a, lb.Random)
}

// SetPassiveHealth says whether Services that do not say it themselves avoid
// suspects: they do unless said otherwise. It is for the time before the first Set.
func (p *Planner) SetPassiveHealth(on bool) { p.passive = on }

// SetHashKey says by which key tables for hashes are filled: the same on all
// nodes. It is for the time before the first Set.
func (p *Planner) SetHashKey(key maglev.Key) { p.pool.key = key }

// Services returns the Services that have frontends in force, sorted.
func (p *Planner) Services() []lb.ServiceName {
	return slices.SortedFunc(maps.Keys(p.owned), lb.ServiceName.Compare)
}

// Needs returns the sizes that hold everything planned so far.
func (p *Planner) Needs() Sizes {
	return Sizes{
		Frontends: p.pool.frontendIDs.size(),
		Slots:     p.pool.regions.end,
		Backends:  p.pool.backendIDs.size(),
		Services:  p.pool.serviceIDs.size(),
		Addresses: uint32(len(p.addresses)),
	}
}

// Set makes the frontends of a Service what is given; none ends the Service.
// A frontend that another Service has stays with that one, and comes to this
// one when it is free: Conflicts says so until then. Where a limit leaves no
// room, nothing of the Service changes and the error is an lb.Problem.
func (p *Planner) Set(name lb.ServiceName, frontends []lb.Frontend) ([]Op, error) {
	c := p.begin(name)
	c.rewrites = p.rewritable(name, frontends)
	for _, f := range frontends {
		c.want(f)
	}
	if err := c.overLimit(); err != nil {
		c.undo()
		return nil, err
	}
	c.finish()
	return c.ops, nil
}

// Conflict is a frontend that a Service wants and another has.
type Conflict struct {
	Service lb.ServiceName // that does not have it
	lb.Problem
}

// Conflicts returns every frontend that a Service wants and another has.
func (p *Planner) Conflicts() []Conflict {
	var conflicts []Conflict
	for _, key := range slices.SortedFunc(maps.Keys(p.wanting), lb.AddrPort.Compare) {
		for _, name := range slices.SortedFunc(maps.Keys(p.wanting[key]), lb.ServiceName.Compare) {
			conflicts = append(conflicts, Conflict{name, lb.Problem{
				Object: "Service " + name.String(),
				Field:  p.wanting[key][name].Kind.String(),
				Value:  key.String(),
				Reason: "Service " + p.frontends[key].owner.String() + " has this frontend",
				Remedy: "give one of the two another address or port",
			}})
		}
	}
	return conflicts
}

// SetNodeAddresses says which addresses are the node's own.
func (p *Planner) SetNodeAddresses(node map[netip.Addr]AddressKind) []Op {
	var ops []Op
	for a, k := range node {
		if p.addresses[a] == nil {
			p.addresses[a] = &address{}
		}
		p.addresses[a].node = k
	}
	for _, a := range slices.SortedFunc(maps.Keys(p.addresses), netip.Addr.Compare) {
		if node[a] == 0 {
			p.addresses[a].node = 0
		}
		p.writeAddress(a, &ops)
	}
	return ops
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
		}
	case kind != e.written:
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

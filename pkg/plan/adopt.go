package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// Adopt returns a planner that goes on from what the maps hold, so that what
// is as it should be needs no write. What nothing refers to is retired. It is
// an error if the content contradicts itself.
func Adopt(c Content, limits Sizes) (*Planner, error) {
	p := New(limits)
	p.frontends = make(map[lb.AddrPort]*entry, len(c.Frontends))
	p.owned = make(map[lb.ServiceName][]lb.AddrPort, len(c.Services))
	p.cidrs = c.ServiceCIDRs
	p.pool.adopted = make(map[Table]*tableRef, len(c.Tables))
	if err := p.pool.adopt(c); err != nil {
		return nil, err
	}
	for _, key := range slices.SortedFunc(maps.Keys(c.Frontends), lb.AddrPort.Compare) {
		if err := p.adoptFrontend(c, key); err != nil {
			return nil, err
		}
	}
	p.pool.adopted = nil
	p.adoptRanges(c.SourceRanges)
	p.adoptDemands()
	for a, kind := range c.Addresses {
		if p.addresses[a] == nil {
			p.addresses[a] = &address{}
		}
		p.addresses[a].written = kind
		p.addresses[a].node = kind &^ (ServiceAddress | FrontendAddress)
	}
	for key, t := range p.pool.tables {
		if t.uses == 0 {
			p.pool.retiredTables[key] = t
		}
	}
	for r := range p.pool.backends.all() {
		if r.uses == 0 {
			p.pool.retiredBackends[r.backend] = r
		}
	}
	for r := range p.pool.services.all() {
		if r.uses == 0 {
			p.pool.retiredServices[r.service] = r
		}
	}
	return p, nil
}

// adopt fills an empty pool with backends, tables and Service names, unused.
func (p *pool) adopt(c Content) error {
	backendIDs, serviceIDs := make(map[uint32]bool, len(c.Backends)), make(map[uint32]bool, len(c.Services))
	p.tables = make(map[string]*tableRef, len(c.Tables))
	for id, b := range c.Backends {
		if other := p.backends.get(b); other != nil {
			return fmt.Errorf("backends %d and %d are both %s", other.id, id, b)
		}
		p.backends.add(backendRef{backend: b, id: id})
		backendIDs[id] = true
	}
	for id, s := range c.Services {
		if other := p.services.get(s); other != nil {
			return fmt.Errorf("services %d and %d are both %s", other.id, id, s)
		}
		p.services.add(serviceRef{service: s, id: id})
		serviceIDs[id] = true
	}
	p.backendIDs, p.serviceIDs = newIDPool(backendIDs), newIDPool(serviceIDs)
	return p.adoptTables(c)
}

// adoptTables takes over the tables, each as the views that name it use it.
func (p *pool) adoptTables(c Content) error {
	cursors, hashed := map[Table]bool{}, map[Table]bool{}
	for _, f := range c.Frontends {
		for _, v := range f.Views {
			if hasCursor(v.Algorithm) {
				cursors[v.Table] = true
			}
			if v.Algorithm.Hashed() {
				hashed[v.Table] = true
			}
		}
	}
	var used []Table
	for table, ids := range c.Tables {
		t, err := adoptTable(c, table, run{slots: ids, weights: c.Weights[table], cursor: cursors[table]})
		if err != nil {
			return err
		}
		if hashed[table] && !table.Dense() {
			t.slots, t.weights = ids, nil
		}
		if other := p.tables[t.key]; other != nil {
			return fmt.Errorf("tables %s and %s are equal", other.table(), table)
		}
		p.tables[t.key] = t
		p.adopted[table] = t
		if !table.Dense() {
			used = append(used, t.region)
		}
	}
	var err error
	p.regions, err = newRegions(used)
	return err
}

func adoptTable(c Content, table Table, r run) (*tableRef, error) {
	t := &tableRef{region: Table{table.Offset, r.extent()}, size: table.Size, key: r.key(), weighted: r.weights != nil, weights: r.weightsOf()}
	if table.Dense() {
		t.region.Size, t.key = 0, table.key()
	}
	seen := map[uint32]bool{}
	for _, id := range r.slots {
		if seen[id] {
			continue
		}
		seen[id] = true
		b, ok := c.Backends[id]
		if !ok {
			return nil, fmt.Errorf("table %s names backend %d, which is not there", table, id)
		}
		t.backends = append(t.backends, b)
	}
	return t, nil
}

// adoptFrontend puts a frontend in force as the maps have it.
func (p *Planner) adoptFrontend(c Content, key lb.AddrPort) error {
	value := c.Frontends[key]
	service, ok := c.Services[value.Service]
	if !ok {
		return fmt.Errorf("frontend %s names service %d, which is not there", key, value.Service)
	}
	var none []Op
	e := &entry{claim: lb.Claim{Service: service.ServiceName, Kind: value.Kind}, adopted: true, service: service, value: value}
	for i, table := range value.Tables() {
		if table.Size == 0 {
			continue
		}
		t := p.pool.adopted[table]
		if t == nil {
			return fmt.Errorf("frontend %s names table %s, which is not there", key, table)
		}
		e.tables[i] = p.pool.adoptUse(t)
	}
	p.pool.useService(service, &none)
	p.frontends[key] = e
	p.owned[service.ServiceName] = append(p.owned[service.ServiceName], key)
	p.countFrontend(key.Addr, value.Kind, 1)
	return nil
}

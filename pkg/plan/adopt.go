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
	p.adoptHomes(c)
	p.adoptDemands()
	for a, kind := range c.Addresses {
		if p.addresses[a] == nil {
			p.addresses[a] = &address{}
		}
		p.addresses[a].written = kind
		p.addresses[a].node = kind &^ (ServiceAddress | FrontendAddress)
	}
	for _, t := range p.pool.tables {
		if t.uses == 0 {
			p.pool.retireTable(t)
		}
	}
	for id := range c.Backends {
		if p.pool.backends.at(id).uses == 0 {
			p.pool.retiredBackends[id] = p.pool.time
		}
	}
	for id := range c.Services {
		if p.pool.services.at(id).uses == 0 {
			p.pool.retiredServices[id] = p.pool.time
		}
	}
	return p, nil
}

// adopt fills an empty pool with backends, tables and Service names, unused.
func (p *pool) adopt(c Content) error {
	backendIDs, serviceIDs := slices.Sorted(maps.Keys(c.Backends)), slices.Sorted(maps.Keys(c.Services))
	p.backendIDs, p.serviceIDs = newIDPool(backendIDs...), newIDPool(serviceIDs...)
	p.backends.expect(len(backendIDs))
	p.services.expect(len(serviceIDs))
	for _, id := range backendIDs {
		b := c.Backends[id]
		if other := p.backends.numberOf(compacted(b)); other != 0 {
			return fmt.Errorf("backends %d and %d are both %s", other, id, b)
		}
		p.backends.addAt(id, backendRef{at: compacted(b)})
	}
	for _, id := range serviceIDs {
		s := c.Services[id]
		if other := p.services.numberOf(s); other != 0 {
			return fmt.Errorf("services %d and %d are both %s", other, id, s)
		}
		p.services.addAt(id, serviceRef{service: s})
	}
	return p.adoptTables(c)
}

// adoptTables takes over the tables, each as the views that name it use it.
func (p *pool) adoptTables(c Content) error {
	p.tables = make(map[string]*tableRef, len(c.Tables))
	cursors, hashed, owner := map[Table]bool{}, map[Table]bool{}, map[Table]Service{}
	for _, f := range c.Frontends {
		if v := f.Views[lb.External]; f.Carried && v.Algorithm.Hashed() {
			owner[v.Table] = c.Services[f.Service]
		}
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
		t, err := c.adoptTable(table, run{slots: ids, weights: c.Weights[table], cursor: cursors[table], owner: owner[table]})
		if err != nil {
			return err
		}
		if hashed[table] && !table.Dense() {
			t.slots, t.weights = ids, nil
			t.was = c.history(table, owner[table])
		}
		if other := p.tables[t.key]; other != nil {
			return fmt.Errorf("tables %s and %s are equal", other.table(), table)
		}
		p.tables[t.key], p.adopted[table] = t, t
		if table.Dense() {
			p.dense += uint64(t.size)
			continue
		}
		used = append(used, t.region)
		p.noteRun(t.region.Size, t.slots != nil)
	}
	var err error
	p.regions, err = newRegions(used)
	return err
}

// useAdopted uses a table once more that the maps have.
func (p *pool) useAdopted(t *tableRef) *tableRef {
	if t.uses == 0 {
		for _, id := range t.ids {
			p.backends.at(id).uses++
		}
	}
	t.uses++
	return t
}

// adoptTable returns a table as the maps have it.
func (c Content) adoptTable(table Table, r run) (*tableRef, error) {
	t := &tableRef{region: Table{Offset: table.Offset}, size: table.Size}
	if table.Dense() { // it has each once
		t.key, t.ids = table.key(), r.slots
	} else {
		t.region.Size, t.key, t.ids = r.extent(), r.key(), once(r.slots)
		t.weighted, t.weights = r.weights != nil, r.weightsOf()
	}
	for _, id := range t.ids {
		if _, there := c.Backends[id]; !there {
			return nil, fmt.Errorf("table %s names backend %d, which is not there", table, id)
		}
	}
	return t, nil
}

// once returns IDs in the order in which they come first.
func once(ids []uint32) []uint32 {
	seen := make(map[uint32]bool, len(ids))
	return slices.DeleteFunc(slices.Clone(ids), func(id uint32) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}

// adoptFrontend puts a frontend in force as the maps have it.
func (p *Planner) adoptFrontend(c Content, key lb.AddrPort) error {
	value := c.Frontends[key]
	service, ok := c.Services[value.Service]
	if !ok {
		return fmt.Errorf("frontend %s names service %d, which is not there", key, value.Service)
	}
	if value.Former {
		return p.adoptFormer(c, key, service)
	}
	var none []Op
	e := &entry{claim: lb.Claim{Service: service.ServiceName, Kind: value.Kind}, adopted: true, value: value}
	for i, table := range value.Tables() {
		if table.Size == 0 {
			continue
		}
		t, there := p.pool.adopted[table]
		if !there {
			return fmt.Errorf("frontend %s names table %s, which is not there", key, table)
		}
		e.tables[i] = p.pool.useAdopted(t)
	}
	p.pool.useService(service, &none)
	p.frontends[key] = e
	p.owned[service.ServiceName] = append(p.owned[service.ServiceName], key)
	p.countFrontend(key.Addr, value.Kind, 1)
	return nil
}

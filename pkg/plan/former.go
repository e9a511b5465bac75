package plan

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

const (
	// formersMost is how many former frontends a Service has at most.
	formersMost = 16
	// formersOfLimit is the part of the limit of frontends that former ones use at most.
	formersOfLimit = 4
)

// former is a frontend that its Service has given up. Clients that began there keep their backends
// as long as the Service port has these, and for a while after the Service port has gone (SetLinger).
// New clients do not find it, and every claim to its address ends it.
type former struct {
	owner   lb.ServiceName
	value   Frontend
	members *tableRef                 // never nil
	until   time.Time                 // when it ends without its Service port; zero while that is there
	left    map[lb.AddrPort]time.Time // when backends left it that drained; nil for none
}

// former returns the value of a former frontend: no view, and what flows need to know. A filtered one
// stays so: a program that has found it just before must not take it for one without source ranges.
func (f Frontend) former() Frontend {
	was := Frontend{Service: f.Service, Kind: f.Kind, Former: true, Filtered: f.Filtered, Members: f.Members, Steering: lb.Steering{PassiveHealth: f.PassiveHealth}}
	for i, v := range f.Views[:lb.FallbackZone] {
		was.Views[i].Why = v.Why
	}
	return was
}

// membersNow returns the members of a Service port in the family of a frontend, nil for none: had, if a
// frontend of it has those.
func (c *change) membersNow(service uint32, key lb.AddrPort, had *tableRef) (has *tableRef) {
	for _, t := range c.take {
		if t.entry.value.Service != service || t.key.Addr.Is4() != key.Addr.Is4() {
			continue
		}
		if m := t.entry.members(); has == nil || m == had {
			has = m
		}
	}
	return has
}

// formersRoom is how many former frontends all Services have at most.
func (p *Planner) formersRoom() int {
	if limit := p.limits[limitedFrontends]; limit > 0 {
		return int(limit / formersOfLimit)
	}
	return math.MaxInt
}

// giveUp makes a frontend a former one, or removes it.
func (c *change) giveUp(key lb.AddrPort) {
	p := c.p
	e := p.frontends[key]
	stays := e.members() != nil && (c.lingers || c.membersNow(e.value.Service, key, nil) != nil)
	if !stays || p.nodePortBelow(key) != nil || len(p.formers) >= p.formersRoom() {
		c.remove(key)
		return
	}
	f := &former{owner: c.name, value: e.value.former(), members: p.pool.shareTable(e.members())}
	p.pool.useService(p.pool.services.at(e.value.Service).service, &c.ops) // there is one
	if d := p.draining[key]; d != nil {
		f.left = d.left
	}
	p.formers[key] = f
	p.formerOf[c.name] = append(p.formerOf[c.name], key)
	delete(p.frontends, key)
	delete(p.draining, key)
	c.beside = append(c.beside, p.beside(key)...)
	c.release(key, e)
	p.writeAddress(key.Addr, &c.ops)
	c.ops = append(c.ops, PutFrontend{Key: key, Value: f.value})
}

// follow has the former frontends of a Service keep what their Service ports have, or had until just now.
func (c *change) follow() {
	p := c.p
	delete(p.lingering, c.name)
	var stay []lb.AddrPort
	for _, key := range slices.Backward(p.formerOf[c.name]) { // from the newest on
		f := p.formers[key]
		has := c.membersNow(f.value.Service, key, f.members)
		switch {
		case c.linger(f, has):
		case has == nil || len(stay) >= formersMost:
			c.endFormer(key, nil)
			continue
		default:
			c.renew(key, f, has)
		}
		stay = append(stay, key)
	}
	slices.Reverse(stay)
	p.setFormers(c.name, stay)
}

// renew gives a former frontend the members that its Service port has now. One that an agent has left half
// written has views, and loses them.
func (c *change) renew(key lb.AddrPort, f *former, has *tableRef) {
	p := c.p
	f.until = time.Time{}
	value, had := f.value.former(), f.members
	if value.Members = has.view(lb.Random).Table; value == f.value {
		return
	}
	if had != has {
		p.lose(key, had, has)
	}
	f.value, f.members = value, p.pool.shareTable(has)
	c.ops = append(c.ops, PutFrontend{Key: key, Value: value})
	p.pool.dropTable(had)
}

// endFormer ends a former frontend: another one is put there, or nothing (nil).
func (c *change) endFormer(key lb.AddrPort, next *entry) {
	p := c.p
	f := p.formers[key]
	delete(p.formers, key)
	var has *tableRef
	if next != nil {
		has = next.members()
	} else {
		c.ops = append(c.ops, DeleteFrontend{Key: key})
		p.retireFrontend(key)
	}
	p.lose(key, f.members, has)
	p.pool.dropTable(f.members)
	p.pool.dropService(f.value.Service)
}

// setFormers says which former frontends a Service has, in the order in which it gave them up.
func (p *Planner) setFormers(name lb.ServiceName, keys []lb.AddrPort) {
	if len(keys) == 0 {
		delete(p.formerOf, name)
		return
	}
	p.formerOf[name] = keys
}

// replaceFormers ends the former frontend at the place of a new one, and those at which a new NodePort
// answers: flows of both could not be told apart.
func (c *change) replaceFormers(t taken) {
	p := c.p
	if len(p.formers) == 0 {
		return
	}
	keys := []lb.AddrPort{t.key}
	if p.frontends[t.key] == nil {
		keys = append(keys, p.beside(t.key)...)
	}
	for _, key := range keys {
		if p.formers[key] == nil {
			continue
		}
		if key != t.key {
			c.removeFormer(key, nil)
			continue
		}
		if c.removeFormer(key, t.entry); t.anew {
			p.retireFrontend(key)
		}
	}
}

// removeFormer is endFormer of one that is not of the Service that changes.
func (c *change) removeFormer(key lb.AddrPort, next *entry) {
	owner := c.p.formers[key].owner
	c.p.setFormers(owner, slices.DeleteFunc(c.p.formerOf[owner], func(k lb.AddrPort) bool { return k == key }))
	c.endFormer(key, next)
}

// trimFormers ends former frontends that are more than there is room for, which an agent before had, and
// those at addresses of the node where a NodePort answers by now.
func (p *Planner) trimFormers() []Op {
	if len(p.formers) == 0 {
		return nil
	}
	c := p.begin(lb.ServiceName{})
	for _, key := range slices.SortedFunc(maps.Keys(p.formers), lb.AddrPort.Compare) {
		if len(p.formers) > p.formersRoom() || p.nodePortBelow(key) != nil {
			c.removeFormer(key, nil)
		}
	}
	return c.ops
}

// adoptFormer takes over a former frontend as the maps have it. Its Service is taken to be there.
func (p *Planner) adoptFormer(c Content, key lb.AddrPort, service Service) error {
	value := c.Frontends[key]
	t, there := p.pool.adopted[value.Members]
	if !there {
		return fmt.Errorf("former frontend %s names table %s, which is not there", key, value.Members)
	}
	f := &former{owner: service.ServiceName, value: value, members: p.pool.useAdopted(t)}
	var none []Op
	p.pool.useService(service, &none)
	p.formers[key] = f
	p.formerOf[f.owner] = append(p.formerOf[f.owner], key)
	return nil
}

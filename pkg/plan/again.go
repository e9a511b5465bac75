package plan

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/pkg/lb"
)

// Again returns what a planner would plan that was told of this node what p was, and of
// Services what frontends says, but goes on from what the maps hold: nothing where they hold
// what they should. done is called with the operations of each Service, and first with those of
// the node, which is the zero name. It changes nothing of p. The error is that of Adopt.
func (p *Planner) Again(c Content, names []lb.ServiceName, frontends func(lb.ServiceName) []lb.Frontend, done func(lb.ServiceName, []Op)) error {
	q, ops, err := p.resume(c, p.stays)
	if err != nil {
		return err
	}
	done(lb.ServiceName{}, ops)
	wanted := map[lb.ServiceName][]lb.Frontend{}
	for _, name := range names {
		wanted[name] = frontends(name)
		q.Ask(name, wanted[name])
	}
	for todo := slices.Clone(names); len(todo) > 0; todo = q.TakeDisplaced() {
		for _, name := range todo {
			if _, known := wanted[name]; !known {
				continue
			}
			ops, _ := q.Set(name, wanted[name]) // what is refused is a problem, which stands elsewhere
			done(name, ops)
		}
	}
	return nil
}

// Resume returns a planner in place of p that goes on from what the maps hold, and the operations of the node. It knows
// what p was told of the node, which backends drain, and which places of frontends are to be cleared: also those of
// operations of p that are dropped. A grace period must have passed since the last operation was applied. Every Service is
// to be Set after that, or stays as it is. Those of which stays says so keep also what they have to leave to a NodePort.
// The error is that of Adopt.
func (p *Planner) Resume(c Content, dropped []Op, stays func(lb.ServiceName) bool) (*Planner, []Op, error) {
	q, ops, err := p.resume(c, stays)
	if err != nil {
		return nil, nil, err
	}
	gone := slices.Collect(maps.Keys(p.pool.retiredFrontends))
	for _, op := range dropped {
		if clear, ok := op.(ClearFrontend); ok {
			gone = append(gone, clear.Key)
		}
	}
	for _, at := range gone { // one that is there again has left its former place
		q.retireFrontend(at)
	}
	return q, ops, nil
}

// resume returns a planner that goes on from what the maps hold, told of this node what p was, and what that makes it plan.
func (p *Planner) resume(c Content, stays func(lb.ServiceName) bool) (*Planner, []Op, error) {
	q, err := Adopt(c, Sizes{})
	if err != nil {
		return nil, nil, err
	}
	q.limits, q.defaults, q.now, q.stays = p.limits, p.defaults, p.now, stays
	for at, d := range p.draining {
		if e := q.frontends[at]; e != nil && e.claim.Service == d.owner {
			q.draining[at] = &drain{owner: d.owner, left: d.left, until: d.until}
		}
	}
	q.linger = p.linger
	for name, until := range p.lingering {
		q.lingering[name] = until
	}
	for name, until := range p.held {
		q.held[name] = until
	}
	for at, f := range q.formers {
		if was := p.formers[at]; was != nil && was.owner == f.owner {
			f.until, f.left = was.until, was.left
		}
	}
	q.pool.key, q.pool.backendIDs.room = p.pool.key, p.pool.backendIDs.room
	return q, q.tellNode(p), nil
}

// tellNode says of the node what another planner was told.
func (p *Planner) tellNode(as *Planner) []Op {
	ops, _ := p.SetServiceCIDRs(as.cidrs) // which were taken
	ops = append(ops, p.SetNodeAddresses(as.node)...)
	if !as.peers.told {
		return ops
	}
	here, nodes := "", map[string]Node{}
	for _, name := range slices.Sorted(maps.Keys(as.peers.ids)) {
		id := as.peers.ids[name]
		if nodes[name] = as.peers.nodes[id]; id == HomeHere {
			here = name
		}
	}
	return append(ops, p.SetPeers(here, nodes)...)
}

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
	q, err := Adopt(c, Sizes{})
	if err != nil {
		return err
	}
	q.limits, q.defaults, q.now = p.limits, p.defaults, p.now
	q.pool.key, q.pool.backendIDs.room = p.pool.key, p.pool.backendIDs.room
	done(lb.ServiceName{}, q.tellNode(p))
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

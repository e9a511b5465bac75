package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// How long backends take to answer. Who compares what is in flight sends a slow one
// as many as the others have at the time, so that its share falls by how much slower it
// is: for that to be less than the hundredth which p99 leaves out, it must be slow.
const (
	usualAnswer = 5 * time.Millisecond
	slowAnswer  = 500 * time.Millisecond
)

// plight is how the servers are.
type plight struct {
	name, key string
	set       func(servers) error
}

// Each comes on top of the one before.
var plights = []plight{
	{"all equal", "equal", func(all servers) error { all.delay(usualAnswer); return nil }},
	{"one slow", "slow", func(all servers) error { all[:1].delay(slowAnswer); return nil }},
	{"one slow, one dead", "dead", func(all servers) error { return all[1].Close() }},
}

// slow measures every algorithm with a slow and a dead backend.
func (b *bench) slow() (err error) {
	all, err := newServers()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.close()) }()
	g, err := b.algorithmGroup()
	if err != nil {
		return err
	}
	if err := b.enter(g); err != nil {
		return err
	}
	if err := b.sufferAll(all); err != nil {
		return err
	}
	return b.drop(g)
}

func (b *bench) sufferAll(all servers) error {
	found := map[string]map[lb.Algorithm]*trouble{}
	all.delay(usualAnswer)
	if err := b.slowBackends(all); err != nil {
		return err
	}
	for _, p := range plights {
		if err := p.set(all); err != nil {
			return err
		}
		var err error
		if found[p.key], err = b.suffer(p.name, algorithms(), b.plan.slowRate, b.plan.slowTime); err != nil {
			return err
		}
	}
	b.reportTrouble(found)
	return nil
}

func (b *bench) reportTrouble(found map[string]map[lb.Algorithm]*trouble) {
	t := table{
		Title: fmt.Sprintf("One slow and one dead backend of %d, by algorithm", slowServers),
		Note: fmt.Sprintf("p99 from when a connection was due until its answer, in ms, median of rounds; %d connections a second for %s in each. Backends answer after "+
			"%s, the slow one after %s, the dead one refuses. × random is the median of the rounds' ratios; random and %d more have clients at the same time. "+
			"All clients are one to sh, which goes where it goes. Passive health is on: failed are connections of all rounds, out of %s, and of random out of more.",
			b.plan.slowRate, b.plan.slowTime, usualAnswer, slowAnswer, atOnce, count(found["dead"][lb.Latency].all())),
		Header: []string{"algorithm"},
	}
	if usual := summary(found["equal"][lb.Random].p99).Median; usual > ms(slowAnswer)/10 {
		t.Note += fmt.Sprintf(" **The machine was too busy for these figures**: with all equal p99 by random is %.0f ms, so that one slow backend hardly shows.", usual)
	}
	for _, p := range plights {
		t.Header = append(t.Header, "p99, "+p.name, "× random")
	}
	t.Header = append(t.Header, "failed")
	for _, a := range algorithms() {
		cells := []string{a.String()}
		for _, p := range plights {
			found[p.key][a].add(b.report, a, p.key)
			cells = append(cells, found[p.key][a].cells()...)
		}
		t.row(append(cells, count(found["dead"][a].failed))...)
	}
	b.report.table(t)
}

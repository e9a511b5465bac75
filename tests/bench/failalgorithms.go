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

// firstAlgorithmPort is that of the first algorithm: each has a port of the Service,
// and of the pods.
const firstAlgorithmPort = 9000

// plight is how the backends are.
type plight struct {
	name, key string
	set       func(pods []*pod)
}

// Each comes on top of the one before.
var plights = []plight{
	{"all equal", "equal", func(pods []*pod) {
		for _, p := range pods {
			p.delay.Store(int64(usualAnswer))
		}
	}},
	{"one slow", "slow", func(pods []*pod) { pods[0].delay.Store(int64(slowAnswer)) }},
	{"one slow, one dead", "dead", func(pods []*pod) { pods[1].refuse() }},
}

// failingAlgorithms measures every algorithm with a slow and a dead backend.
func (b *bench) failingAlgorithms() (err error) {
	var ports []uint16
	for a := lb.Random; a <= lb.Latency; a++ {
		ports = append(ports, firstAlgorithmPort+uint16(a))
	}
	pods, err := newPods(failPods, ports...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePods(pods)) }()
	var service []lb.Frontend
	for a := lb.Random; a <= lb.Latency; a++ {
		port := firstAlgorithmPort + uint16(a)
		f := lb.Frontend{Port: a.String(), Algorithm: a, Internal: failView(pods, port)}
		f.AddrPort = lb.AddrPort{Addr: failService(port).Addr(), Port: port, Protocol: lb.TCP}
		service = append(service, f)
	}
	g, err := b.failGroup("failing-algorithms", service)
	if err != nil {
		return err
	}
	if err := b.enter(g); err != nil {
		return err
	}
	if err := b.sufferAll(pods); err != nil {
		return err
	}
	return b.drop(g)
}

func (b *bench) sufferAll(pods []*pod) (err error) {
	var all []lb.Algorithm
	for a := lb.Random; a <= lb.Latency; a++ {
		all = append(all, a)
	}
	found := map[string]map[lb.Algorithm]*trouble{}
	plights[0].set(pods)
	if err := b.slowBackends(pods); err != nil {
		return err
	}
	for _, p := range plights {
		p.set(pods)
		if found[p.key], err = b.suffer(p.name, all, b.plan.plightRate, b.plan.plightTime); err != nil {
			return err
		}
	}
	b.reportTrouble(found)
	return nil
}

func (b *bench) reportTrouble(found map[string]map[lb.Algorithm]*trouble) {
	t := table{
		Title: fmt.Sprintf("One slow and one dead backend of %d, by algorithm", failPods),
		Note: fmt.Sprintf("p99 from when a connection was due until its answer, in ms, median of rounds; %d connections a second for %s in each. Backends answer after "+
			"%s, the slow one after %s, the dead one refuses. × random is the median of the rounds' ratios; random and %d more have clients at the same time. "+
			"All clients are one to sh, which goes where it goes. Passive health is on: failed are connections of all rounds, out of %s, and of random out of more.",
			b.plan.plightRate, b.plan.plightTime, usualAnswer, slowAnswer, atOnce, count(found["dead"][lb.Latency].all())),
		Header: []string{"algorithm"},
	}
	if usual := summary(found["equal"][lb.Random].p99).Median; usual > ms(slowAnswer)/10 {
		t.Note += fmt.Sprintf(" **The machine was too busy for these figures**: with all equal p99 by random is %.0f ms, so that one slow backend hardly shows.", usual)
	}
	for _, p := range plights {
		t.Header = append(t.Header, "p99, "+p.name, "× random")
	}
	t.Header = append(t.Header, "failed")
	for a := lb.Random; a <= lb.Latency; a++ {
		cells := []string{a.String()}
		for _, p := range plights {
			found[p.key][a].add(b.report, a, p.key)
			cells = append(cells, found[p.key][a].cells()...)
		}
		t.row(append(cells, count(found["dead"][a].failed))...)
	}
	b.report.table(t)
}

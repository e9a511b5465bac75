package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// failPods is how many backends the Services of drills have, and nearPods how many
// of them are in the zone of the node.
const (
	failPods = 10
	nearPods = 4
)

// What drills tell the datapath: the defaults of the agent.
const (
	suspectAfter = 3
	maxEjected   = 50
)

// The Service of drills answers on two ports that differ in the annotation alone.
// Each has backends of its own, on the same pods: so both meet the same failure at
// the same time, and what one learns is of no use to the other.
var drillPorts = []struct {
	passive lb.Switch
	service uint16
	backend uint16
}{{lb.SwitchOff, 80, 8080}, {lb.SwitchOn, 81, 8081}}

// drill is a way to fail.
type drill struct {
	name, key string
	zoned     bool // the Service prefers the zone of the node
	fail      func(ctx context.Context, d *drilling) error
}

// drilling is a drill that goes on.
type drilling struct {
	pods []*pod
	took time.Duration // how long clients come
}

var drills = []drill{
	{"one of ten vanishes silently", "vanishes", false, func(_ context.Context, d *drilling) error { return d.pods[0].vanish() }},
	{"one of ten refuses", "refuses", false, func(_ context.Context, d *drilling) error { d.pods[0].refuse(); return nil }},
	{"one of ten accepts and never answers", "hangs", false, func(_ context.Context, d *drilling) error { d.pods[0].delay.Store(-1); return nil }},
	{"one of ten refuses every other second", "flaps", false, func(ctx context.Context, d *drilling) error { return d.flap(ctx, d.pods[:1], time.Second) }},
	{"all refuse for a third of the time", "all_down", false, func(ctx context.Context, d *drilling) error { return d.flap(ctx, d.pods, d.took/3) }},
	{"the zone of the node vanishes silently", "zone_down", true, func(_ context.Context, d *drilling) error {
		for _, p := range d.pods[:nearPods] {
			if err := p.vanish(); err != nil {
				return err
			}
		}
		return nil
	}},
}

// flap has pods refuse for as long, then listen for as long, until clients go.
func (d *drilling) flap(ctx context.Context, pods []*pod, each time.Duration) error {
	for left := d.took; left > each && ctx.Err() == nil; left -= 2 * each {
		for _, p := range pods {
			p.refuse()
		}
		time.Sleep(each)
		for _, p := range pods {
			if err := p.listen(drillPorts[0].backend, drillPorts[1].backend); err != nil {
				return err
			}
		}
		time.Sleep(each)
	}
	return nil
}

// failures measures what clients notice of backends that fail.
func (b *bench) failures() error {
	t := table{
		Title: fmt.Sprintf("Backends that fail: %d backends, random, %d connections a second", failPods, b.plan.drillRate),
		Note: fmt.Sprintf("Two Services on the same pods at the same time, one with `headgate.dev/passive-health: \"off\"`. Clients come for %s, the failure with the "+
			"first of them. Failed: refused, or no answer after %s. Slow: an answer after %s or more. Noticed: from the failure until the first backend is a suspect. "+
			"Who accepts and never answers is no suspect: the kernel of the backend takes every connection. While all are down nobody can be helped.",
			b.plan.drillTime, clientTimeout, slowFrom),
		Header: []string{"failure", "connections each", "failed, off", "slow, off", "failed, on", "slow, on", "noticed, ms"},
	}
	for _, d := range drills {
		if err := b.step("%s", d.name); err != nil {
			return err
		}
		if err := b.drill(&t, d); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	b.report.table(t)
	return nil
}

// drill lets something fail while clients of both Services come.
func (b *bench) drill(t *table, d drill) (err error) {
	pods, err := newPods(failPods, drillPorts[0].backend, drillPorts[1].backend)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePods(pods)) }()
	g, err := b.failGroup("drill-"+d.key, drillServices(pods, d.zoned))
	if err != nil {
		return err
	}
	if err := b.enter(g); err != nil {
		return err
	}
	var out [2]outcomes
	var wait sync.WaitGroup
	began := time.Now()
	for i, port := range drillPorts {
		wait.Go(func() {
			out[i] = arrivals{failService(port.service), b.plan.drillRate, b.plan.drillTime}.run(b.ctx)
		})
	}
	noticed := make(chan time.Duration, 1)
	go func() { noticed <- g.firstSuspect(began, b.plan.drillTime) }()
	failed := d.fail(b.ctx, &drilling{pods, b.plan.drillTime})
	wait.Wait()
	b.reportDrill(t, d, out, <-noticed)
	if failed != nil {
		return failed
	}
	return b.drop(g)
}

func (b *bench) reportDrill(t *table, d drill, out [2]outcomes, noticed time.Duration) {
	cells := []string{d.name, count(len(out[0].answered) + out[0].failed)}
	for i, how := range []string{"off", "on"} {
		key := "failures/" + d.key + "/" + how
		b.report.value(key+"/failed", "", float64(out[i].failed))
		b.report.value(key+"/slow", "", float64(out[i].slow))
		cells = append(cells, count(out[i].failed), count(out[i].slow))
	}
	if noticed == 0 {
		t.row(append(cells, "never")...)
		return
	}
	b.report.value("failures/"+d.key+"/noticed", "ms", ms(noticed))
	t.row(append(cells, us(ms(noticed)))...)
}

// failService is where clients of drills connect to.
func failService(port uint16) netip.AddrPort { return netip.AddrPortFrom(nth(serviceNet4, 1), port) }

// failView is a view of pods.
func failView(pods []*pod, port uint16) (v lb.View) {
	for _, p := range pods {
		v.Backends = append(v.Backends, lb.AddrPort{Addr: p.addr, Port: port, Protocol: lb.TCP})
	}
	return v
}

// drillServices returns the two ports of the Service of a drill.
func drillServices(pods []*pod, zoned bool) (out []lb.Frontend) {
	for _, port := range drillPorts {
		f := lb.Frontend{Port: fmt.Sprint(port.service), Health: lb.Health{Passive: port.passive}}
		f.AddrPort = lb.AddrPort{Addr: failService(port.service).Addr(), Port: port.service, Protocol: lb.TCP}
		f.Internal = failView(pods, port.backend)
		if zoned {
			f.Internal = failView(pods[:nearPods], port.backend)
			f.Internal.Widens, f.Wider[1] = true, failView(pods, port.backend)
		}
		out = append(out, f)
	}
	return out
}

// failGroup makes a group with a Service and with passive health.
func (b *bench) failGroup(name string, service []lb.Frontend) (*group, error) {
	g, err := b.newGroup(name)
	if err != nil {
		return nil, err
	}
	g.root = filepath.Join(b.bpffs, name)
	cfg := g.config(nil)
	cfg.SuspectAfter, cfg.MaxEjected = suspectAfter, maxEjected
	return g, bringIn(cfg, 1, func(int) []lb.Frontend { return service })
}

// firstSuspect returns how long it takes until a backend is a suspect, 0 if none
// is by the end.
func (g *group) firstSuspect(began time.Time, most time.Duration) time.Duration {
	i, err := datapath.Inspect(g.root)
	if err != nil {
		return 0
	}
	defer i.Close()
	for time.Since(began) < most {
		if s, err := i.Status(); err == nil && s.Counters["backend_suspected"] > 0 {
			return time.Since(began)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0
}

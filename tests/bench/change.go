package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// endpointsEach is how many endpoints a Service has in the parts about the
// agent.
const endpointsEach = 10

// change measures how long one changed endpoint takes to the kernel.
func (b *bench) change() error {
	services := b.plan.big
	if err := b.step("load %s Services", count(services)); err != nil {
		return err
	}
	g, err := b.emptyNode("change")
	if err != nil {
		return err
	}
	n, err := b.startNode(g, plainServices(services, endpointsEach))
	if err != nil {
		return err
	}
	t := table{
		Title:  fmt.Sprintf("One endpoint changes, among %s Services with %d endpoints each", count(services), endpointsEach),
		Header: []string{"way", "p50", "p90", "p99", "worst", "changes", "writes each", "allocations each"},
	}
	if err = b.changeObjects(n, &t); err == nil {
		err = b.changeBatches(n, &t)
	}
	n.stop()
	if err == nil {
		err = b.drop(g)
	}
	if err == nil {
		err = b.changeFiles(&t)
	}
	if err != nil {
		return err
	}
	t.Note = "In µs, from the call of Update or from before the write of the file, until the operations were done: the maps are memory, so that they hold it then. " +
		"Changes come one at a time, each to a Service at random. A saved file waits 2 ms for more of it to come (part of the figure). " +
		"Where Services are replaced it is the time until the last one that comes is in force."
	b.report.table(t)
	return nil
}

// changed returns the slice of a Service with another last endpoint.
func changed(service, change int) *lb.Slice {
	_, s := plainService(service, endpointsEach)
	s.Endpoints[endpointsEach-1] = endpoint(changedEndpoint(change))
	return s
}

// changedEndpoint returns an address that no Service has had before.
func changedEndpoint(change int) netip.Addr { return nth(netip.MustParseAddr("10.200.0.0"), change+1) }

// changeObjects measures from the reconciler on.
func (b *bench) changeObjects(n *node, t *table) error {
	changes := b.plan.changes
	rng := rand.New(rand.NewPCG(5, 6))
	took := make([]time.Duration, 0, changes)
	var ops int
	updates := make([]lb.Update, changes)
	for i := range updates {
		slice := changed(rng.IntN(b.plan.big), i)
		updates[i] = lb.Update{Slices: map[lb.SliceName]*lb.Slice{slice.SliceName: slice}}
	}
	n.dp.forget()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, u := range updates {
		from := time.Now()
		n.inbox.Update(u)
		a, err := b.wait(n.dp)
		if err != nil {
			return err
		}
		took = append(took, a.at.Sub(from))
		ops += a.ops
		time.Sleep(time.Millisecond) // the reconciler sleeps before the next one
	}
	runtime.ReadMemStats(&after)
	if err := isInKernel(n.group.root, changedEndpoint(changes-1)); err != nil {
		return err
	}
	allocations := float64(after.Mallocs-before.Mallocs) / float64(changes)
	b.reportChange(t, "from objects to the maps", "objects", took, ops, fmt.Sprintf("%.0f", allocations))
	b.report.value("change/objects/allocations", "", allocations)
	return nil
}

// isInKernel returns an error unless the pinned maps hold a backend.
func isInKernel(root string, a netip.Addr) error {
	i, err := datapath.Inspect(root)
	if err != nil {
		return err
	}
	defer i.Close()
	c, err := i.Content()
	if err != nil {
		return err
	}
	for _, backend := range c.Backends {
		if backend.Addr == a {
			return c.Check()
		}
	}
	return fmt.Errorf("the maps do not hold backend %s", a)
}

// reportChange adds a line.
func (b *bench) reportChange(t *table, name, key string, took []time.Duration, ops int, allocations string) {
	slices.Sort(took)
	at := func(share float64) float64 {
		return took[min(int(share*float64(len(took))), len(took)-1)].Seconds() * 1e6
	}
	p50, p90, p99, worst := at(0.5), at(0.9), at(0.99), at(1)
	for name, v := range map[string]float64{"p50": p50, "p90": p90, "p99": p99, "worst": worst} {
		b.report.value("change/"+key+"/"+name, "µs", v)
	}
	t.row(name, us(p50), us(p90), us(p99), us(worst), count(len(took)), fmt.Sprintf("%.1f", float64(ops)/float64(len(took))), allocations)
}

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// The Service that is rolled: slices and endpoints of each, and how many endpoints one event
// replaces.
const (
	rolledSlices = 50
	rolledEach   = 100
	rolledStep   = 5
)

var (
	rolledAddr = netip.MustParseAddr("10.104.0.1")
	rolledNet  = netip.MustParseAddr("10.160.0.0")
	rolledTo   = netip.MustParseAddr("10.170.0.0")
)

// rolledSlice returns a slice of the rolled Service.
func rolledSlice(number int) *discoveryv1.EndpointSlice {
	return apiSlice("rolled", number, nth(rolledNet, number*rolledEach+1), rolledEach)
}

// rolling replaces all endpoints of a large Service, beside the others.
func (r *driver) rolling(c shape, t *table) error {
	if _, err := r.api.services.change(watch.Added, apiService("rolled", rolledAddr)); err != nil {
		return err
	}
	all := make([]*discoveryv1.EndpointSlice, rolledSlices)
	for i := range all {
		all[i] = rolledSlice(i)
		if _, err := r.api.slices.change(watch.Added, all[i]); err != nil {
			return err
		}
	}
	if err := r.await(1, func(addr netip.Addr, size uint32) bool { return addr == rolledAddr && size == rolledSlices*rolledEach }); err != nil {
		return err
	}
	first := r.made + 1
	next := func(made int) *discoveryv1.EndpointSlice {
		i := made - first
		es := all[i%rolledSlices]
		for k := range rolledStep {
			at := i/rolledSlices*rolledStep + k
			es.Endpoints[at].Addresses = []string{nth(rolledTo, i%rolledSlices*rolledEach+at+1).String()}
		}
		return es
	}
	rolled := course{name: fmt.Sprintf("a Service of %s rolled, %d endpoints each, 100 a second", count(rolledSlices*rolledEach), rolledStep),
		key: "rolled", count: rolledSlices * rolledEach / rolledStep, rate: 100}
	return r.row(c, rolled, []*follower{{addr: rolledAddr, next: next}}, t)
}

// newcomers is where Services have their addresses that come to the others.
var newcomers = netip.MustParseAddr("10.106.0.0")

// growing makes changes while so many Services come that maps grow: a quarter more than there is room
// for.
func (r *driver) growing(c shape, all []*follower, t *table) error {
	before, n := r.view.id, (r.view.room()-c.services)*5/4
	k := course{name: fmt.Sprintf("while %s Services come and maps grow, 1,000 a second", count(n)), key: "growth", count: n, rate: 1000}
	k.also = func(i int) error {
		_, err := r.api.services.change(watch.Added, apiService(fmt.Sprintf("added-%d", i), nth(newcomers, i+1)))
		return err
	}
	all = slices.DeleteFunc(all, func(f *follower) bool { return f.addr.Less(nth(serviceNet4, c.services/10+256)) }) // replaced
	if err := r.row(c, k, all, t); err != nil {
		return err
	}
	for limit := time.Now().Add(time.Minute); r.view.id == before; nap(10 * time.Millisecond) { // what has come may wait for it
		if err := r.view.renew(); err != nil {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%d Services more, and the frontends map did not grow", n)
		}
	}
	return r.ctx.Err()
}

// replaced deletes Services and makes as many, all at once.
func (r *driver) replaced(c shape, t *table) error {
	if err := r.step("%s endpoints: Services are replaced", c); err != nil {
		return err
	}
	n := c.services / 10
	var services, slices []news // encoded before anything is measured
	for i := range n {
		if err := r.replace(c, i, &services, &slices); err != nil {
			return err
		}
	}
	cpu, err := spends(r.agent.Process, func() error {
		r.api.services.tell(services...)
		r.api.slices.tell(slices...)
		return r.await(n, func(addr netip.Addr, size uint32) bool { return isReplacement(addr, n) && size > 0 })
	})
	if err != nil {
		return err
	}
	took := time.Since(epoch.Add(time.Duration(min(services[0].sent.Load(), slices[0].sent.Load()))))
	r.report.value(c.key()+"replaced", "ms", ms(took))
	t.row(c.String(), count(n)+" Services deleted and as many made, the last in force", "", "", "", us(took.Seconds()*1e6), "", us(cpu/float64(n)*1e6))
	return nil
}

// replacements is where Services have their addresses that replace others.
var replacements = netip.MustParseAddr("10.105.0.0")

func isReplacement(addr netip.Addr, n int) bool {
	return replacements.Less(addr) && addr.Compare(nth(replacements, n)) <= 0
}

// replace deletes a Service with its slices and makes another one in its place.
func (r *driver) replace(c shape, i int, services, slices *[]news) error {
	name := "new-" + serviceName(i).Name
	err := errors.Join(
		r.api.services.add(services, watch.Deleted, c.service(i)),
		r.api.services.add(services, watch.Added, apiService(name, nth(replacements, i+1))))
	for k := range c.slices {
		old := c.slice(i, k)
		first := netip.MustParseAddr(old.Endpoints[0].Addresses[0])
		err = errors.Join(err,
			r.api.slices.add(slices, watch.Deleted, old),
			r.api.slices.add(slices, watch.Added, apiSlice(name, k, first, c.endpoints)))
	}
	return err
}

// add encodes a change that is told after others.
func (c *collection) add(all *[]news, kind watch.EventType, o apiObject) error {
	n, err := c.encodeNews(kind, o, len(*all))
	*all = append(*all, n)
	return err
}

// awaitPause is between two looks at all frontends, each of which takes a CPU for half a millisecond.
const awaitPause = 4 * time.Millisecond

// await returns when so many frontends are as a function wants them: by address, and size of
// the table of internal clients.
func (r *driver) await(n int, wanted func(addr netip.Addr, size uint32) bool) error {
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); nap(awaitPause) {
		if err := r.view.renew(); err != nil {
			return err
		}
		got := 0
		clear(r.view.places)
		r.view.scan(func(offset int, addr netip.Addr) {
			if wanted(addr, r.view.size(offset)) {
				got++
			}
		})
		if got == n {
			return r.ctx.Err()
		}
	}
	return fmt.Errorf("%d frontends did not come to the kernel:\n%s", n, r.agent.Tail())
}

package contender

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// membership is what a Service has of an endpoint at the moment.
type membership uint8

const (
	ready       membership = iota
	terminating            // takes no new connections, and goes on with those that it has
	gone
)

// member is an endpoint that a Service has, had or will have. Its topology among the
// members stays, so that rules for it keep their names.
type member struct {
	addr netip.AddrPort
	is   membership
}

// version is what a Service is at some time.
type version struct {
	service // without endpoints
	number  int
	members []member
	deleted bool
}

func (v version) clone() version {
	v.members = slices.Clone(v.members)
	return v
}

// current returns the Service with the endpoints that take new connections.
func (v version) current() service {
	s := v.service
	s.Endpoints = nil
	for _, m := range v.members {
		if m.is == ready {
			s.Endpoints = append(s.Endpoints, m.addr)
		}
	}
	return s
}

// syncPeriod is how long kube-proxy waits at least, unless told otherwise, between
// two changes of its rules: those that come in the meantime are one.
const syncPeriod = time.Second

// applyLimit is how long a change may take to be applied.
const applyLimit = time.Minute

// changes brings changes of Services to a load balancer.
type changes struct {
	// apply brings what some Services were and are to it.
	apply  func(ctx context.Context, before, after []version) error
	period time.Duration // between two applications at least

	mutex   sync.Mutex
	wanted  map[int]version // those that can change, by their number
	applied map[int]version
	pending *batch

	applying sync.Mutex
	last     time.Time // under applying, and so is failed
	failed   error     // from then on nobody knows what is applied
}

// batch is changes that are applied together.
type batch struct {
	numbers map[int]bool
	done    chan struct{} // closed when they are applied
	err     error         // to be read after done
}

// edit changes a Service, and returns what to wait for until it is applied.
func (c *changes) edit(number int, change func(*version)) *batch {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	v := c.wanted[number].clone()
	change(&v)
	c.wanted[number] = v
	if c.pending == nil {
		c.pending = &batch{numbers: make(map[int]bool), done: make(chan struct{})}
		go c.flush(c.pending)
	}
	c.pending.numbers[number] = true
	return c.pending
}

// all returns the Services that can change, as they are to be.
func (c *changes) all() []version {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return slices.Collect(maps.Values(c.wanted))
}

// wait returns when a batch is applied.
func (b *batch) wait() error {
	<-b.done
	return b.err
}

// flush applies a batch, with all that comes until it is its turn.
func (c *changes) flush(b *batch) {
	defer close(b.done)
	c.applying.Lock()
	defer c.applying.Unlock()
	time.Sleep(time.Until(c.last.Add(c.period)))
	c.mutex.Lock()
	c.pending = nil
	var before, after []version
	for number := range b.numbers {
		before, after = append(before, c.applied[number].clone()), append(after, c.wanted[number].clone())
		c.applied[number] = c.wanted[number].clone()
	}
	c.mutex.Unlock()
	byNumber := func(a, b version) int { return cmp.Compare(a.number, b.number) }
	slices.SortFunc(before, byNumber)
	slices.SortFunc(after, byNumber)
	ctx, cancel := context.WithTimeout(context.Background(), applyLimit)
	defer cancel()
	c.last = time.Now()
	if err := c.apply(ctx, before, after); c.failed == nil && err != nil {
		c.failed = fmt.Errorf("change Services: %w", err)
	}
	b.err = c.failed
}

// newChanges returns what can change of a contender's Services: the asked one, and as
// many others as churn goes through, with one more that comes and goes.
func (p *Contender) newChanges() *changes {
	c := &changes{wanted: make(map[int]version), applied: make(map[int]version)}
	add := func(number int, s service, deleted bool) {
		v := version{service: s, number: number, deleted: deleted}
		for _, e := range s.Endpoints {
			v.members = append(v.members, member{addr: e})
		}
		if number == asked(p.Spec.Services) && p.Spec.Drill {
			v.members = append(v.members, member{addr: p.taken.replacement, is: gone})
		}
		c.wanted[number], c.applied[number] = v, v.clone()
	}
	add(asked(p.Spec.Services), p.services[asked(p.Spec.Services)], false)
	for _, number := range churned(p.Spec.Services) {
		add(number, p.services[number], false)
	}
	if p.Spec.Services > 1 {
		more := newServices(p.site.Topology.Spec, p.withOneMore())
		add(p.Spec.Services, more[p.Spec.Services], true)
	}
	c.apply, c.period = p.applier()
	return c
}

// withOneMore is the contender with one Service more.
func (p *Contender) withOneMore() Spec {
	spec := p.Spec
	spec.Services++
	return spec
}

// applier returns how a contender is told of changes, and how often at most.
func (p *Contender) applier() (apply func(ctx context.Context, before, after []version) error, period time.Duration) {
	switch p.Spec.Name {
	case Direct:
		return func(context.Context, []version, []version) error { return nil }, 0
	case HeadgateSocket, HeadgateTC:
		return func(_ context.Context, _, after []version) error { return p.writeChanged(after) }, 0
	case IPTables:
		return func(ctx context.Context, before, after []version) error {
			return p.feed(ctx, iptablesChange(before, after), p.iptablesRestore(), "--noflush")
		}, syncPeriod
	case NFTables:
		return func(ctx context.Context, before, after []version) error {
			return p.feed(ctx, nftablesChange(before, after), "nft", "-f", "-")
		}, syncPeriod
	case KubeProxyIPTables, KubeProxyNFTables: // it waits for as long itself
		return p.changeAPIServer, 0
	}
	return func(ctx context.Context, _, _ []version) error {
		if err := p.writeServices(p.changes.all()); err != nil {
			return err
		}
		return p.command(ctx, p.Spec.Hook.Change)
	}, 0
}

// writeManifests writes all Services for the agent. Those that change have files
// of their own, so that a change is written in no more time than it takes.
func (p *Contender) writeManifests() error {
	var fixed []service
	for number, s := range p.services {
		if _, changes := p.changes.wanted[number]; !changes {
			fixed = append(fixed, s)
		}
	}
	text := manifests(fixed, p.node, p.site.Topology.Machine(p.node).Addrs, p.outside())
	if err := os.WriteFile(filepath.Join(p.dir, "manifests", "services.json"), []byte(text), 0o600); err != nil {
		return err
	}
	return p.writeChanged(slices.Collect(maps.Values(p.changes.wanted)))
}

// writeChanged writes Services, each to its file, which is there whole or not at
// all.
func (p *Contender) writeChanged(services []version) error {
	for _, v := range services {
		path := filepath.Join(p.dir, "manifests", fmt.Sprintf("service-%05d.json", v.number))
		if v.deleted {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove a Service: %w", err)
			}
			continue
		}
		if err := replaceFile(path, filepath.Join(p.dir, "partial"), manifest(v.service, v.members, p.node, p.outside())); err != nil {
			return err
		}
	}
	return nil
}

// writeServices writes the list that commands find, with Services as they are in
// changed.
func (p *Contender) writeServices(changed []version) error {
	all := slices.Clone(p.services)
	for _, v := range changed {
		switch {
		case v.number < len(all):
			all[v.number] = v.current()
		case !v.deleted:
			all = append(all, v.current())
		}
	}
	var list strings.Builder
	for _, s := range all {
		fmt.Fprint(&list, s.Protocol, " ", s.Addr)
		for _, e := range s.Endpoints {
			fmt.Fprint(&list, " ", e)
		}
		fmt.Fprintln(&list)
	}
	return replaceFile(p.servicesFile(), filepath.Join(p.dir, "partial"), list.String())
}

// servicesFile is where commands find Services.
func (p *Contender) servicesFile() string { return filepath.Join(p.dir, "services") }

// replaceFile writes a file by way of another one in the same file system.
func replaceFile(path, partial, text string) error {
	if err := os.WriteFile(partial, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(partial, path)
}

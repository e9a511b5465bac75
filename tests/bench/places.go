package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
)

// place is where a promise can be kept, with the comparison programs for it.
type place struct {
	name, key string
	connect   string
	release   string // "" where nothing is to be done when a socket goes
}

var allPlaces = []place{
	{"nowhere", "none", "connect_none", ""},
	{"array slot at the cookie, socket storage behind it", "slot", "connect_slot", "release_slot"},
	{"preallocated hash by cookie, deleted at release", "hash", "connect_hash", "release_hash"},
	{"LRU hash by cookie", "lru", "connect_lru", ""},
	{"socket storage", "storage", "connect_storage", ""},
}

// placeGroup attaches the comparison programs of a place. They work on the maps
// of the product: only the place differs.
func (b *bench) placeGroup(p place, product *group) (*group, error) {
	if g := b.groups["place-"+p.key]; g != nil {
		return g, nil
	}
	g, err := b.newGroup("place-" + p.key)
	if err != nil {
		return nil, err
	}
	c, err := loadComparison(product)
	if err != nil {
		return nil, fmt.Errorf("load the comparison programs: %w", err)
	}
	g.closers = append(g.closers, func() error { c.Close(); return nil })
	for _, h := range []struct {
		name, program string
		attach        ebpf.AttachType
	}{{"connect4", p.connect, ebpf.AttachCGroupInet4Connect}, {"sock_release", p.release, ebpf.AttachCgroupInetSockRelease}} {
		if h.program == "" {
			continue
		}
		if err := g.attach(h.name, h.attach, c.DetachProgram(h.program)); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// loadComparison loads all comparison programs on the product's maps, but with
// promises of their own.
func loadComparison(product *group) (*ebpf.Collection, error) {
	spec, err := loadPlaces()
	if err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range shared {
			m.Close()
		}
	}()
	for _, name := range []string{"frontend_ids", "frontends", "slots", "backends", "services", "addresses", "known_addresses", "service_cidrs", "affinities", "counters", "random_state"} {
		m, err := ebpf.LoadPinnedMap(filepath.Join(product.root, "maps", name), nil)
		if err != nil {
			return nil, err
		}
		shared[name] = m
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	spec.Maps["promises"].MaxEntries = datapath.DefaultPromises
	if err := spec.Variables["promises_mask"].Set(uint32(datapath.DefaultPromises - 1)); err != nil {
		return nil, err
	}
	return ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
}

// placeLine is a line of the table of places.
type placeLine struct {
	place
	again, any, whole *kase
}

// placeBench makes the cases of places.
type placeBench struct {
	b       *bench
	cases   []*kase
	sockets []int
}

// line makes the cases of a place, in the group with its programs.
func (p *placeBench) line(of place, g *group) (*placeLine, error) {
	b := p.b
	if err := b.enter(g); err != nil {
		return nil, err
	}
	one, all := newTargets(serviceNet4, 1, servicePort), newTargets(serviceNet4, b.most(), servicePort)
	var ops []op
	for _, t := range []*targets{one, all} {
		fd, err := socket(unix.AF_INET, unix.SOCK_DGRAM)
		if err != nil {
			return nil, err
		}
		p.sockets = append(p.sockets, fd)
		ops = append(ops, reconnect(fd, t))
	}
	l := &placeLine{
		place: of,
		again: &kase{name: of.name + ", connect() again", n: b.plan.calls, op: ops[0]},
		any:   &kase{name: of.name + ", any Service", n: b.plan.calls, op: ops[1]},
		whole: &kase{name: of.name + ", whole life", group: g, n: b.plan.calls / 2, op: life(one, wholeLife)},
	}
	p.cases = append(p.cases, l.again, l.any, l.whole)
	return l, nil
}

// places compares the places where a promise can be kept.
func (b *bench) places() error {
	product, err := b.product(udp4, b.most(), 10)
	if err != nil {
		return err
	}
	bare, err := b.bare()
	if err != nil {
		return err
	}
	p := &placeBench{b: b}
	defer func() {
		for _, fd := range p.sockets {
			closeSocket(fd)
		}
	}()
	base, err := p.line(place{name: "no program", key: "no_program"}, bare)
	if err != nil {
		return err
	}
	var lines []*placeLine
	for _, of := range allPlaces {
		g, err := b.placeGroup(of, product)
		if err != nil {
			return err
		}
		l, err := p.line(of, g)
		if err != nil {
			return err
		}
		lines = append(lines, l)
	}
	own, err := p.line(place{name: "Headgate itself, with all its hooks", key: "headgate"}, product)
	if err != nil {
		return err
	}
	if err := b.interleave("places of promises", p.cases, b.plan.rounds); err != nil {
		return err
	}
	b.reportPlaces(base, append(lines, own))
	return nil
}

func (b *bench) reportPlaces(base *placeLine, lines []*placeLine) {
	t := table{
		Title: "Where a promise is kept: what the programs add, UDP over IPv4",
		Note: fmt.Sprintf("ns over no program. The programs do the same look-ups in the same maps of %s Services; only the place differs. ", count(b.most())) +
			"A whole life is socket(), connect(), close(), with what happens at the release.",
		Header: []string{"place", "connect() again", "quartiles", "any Service", "quartiles", "whole life", "quartiles"},
	}
	for _, l := range lines {
		cells := []string{l.name}
		for _, c := range []struct {
			key      string
			of, over *kase
		}{{"again_added", l.again, base.again}, {"any_added", l.any, base.any}, {"whole_added", l.whole, base.whole}} {
			plus := added(c.of.typical, c.over.typical)
			b.report.add("places/"+l.key+"/"+c.key, "ns", plus)
			cells = append(cells, ns(plus), spread(plus))
		}
		t.row(cells...)
	}
	t.Note += b.report.verdictOnPlaces()
	b.report.table(t)
}

var errNoRuns = errors.New("the program did not run")

package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// rival is what compares two objects of the product.
type rival struct {
	b           *bench
	bare        *group
	object      []byte
	comparisons []*comparison // none is the other object
	closers     []func()
}

// The parts of a comparison of two objects.
var comparedParts = []struct {
	name    string
	compare func(*bench, []byte) error
}{
	{"sockets", (*bench).compareSockets},
	{"runs", (*bench).compareRuns},
	{"packets", (*bench).comparePackets},
	{"carry", (*bench).compareCarried},
}

// compareObjects measures another object of the product beside the one built
// in: what a change of the programs has brought.
func (b *bench) compareObjects() error {
	object, err := os.ReadFile(b.against)
	if err != nil {
		return err
	}
	for _, part := range comparedParts {
		if b.only != "" && !strings.Contains(","+b.only+",", ","+part.name+",") {
			continue
		}
		if err := part.compare(b, object); err != nil {
			return err
		}
	}
	return nil
}

// compareSockets compares whole calls.
func (b *bench) compareSockets(object []byte) error {
	bare, err := b.bare()
	if err != nil {
		return err
	}
	r := &rival{b: b, bare: bare, object: object}
	defer func() {
		for _, c := range r.closers {
			c()
		}
	}()
	for _, services := range []int{1, b.most()} {
		for _, f := range flavours {
			if err := r.add(f, services); err != nil {
				return err
			}
		}
	}
	var cases []*kase
	for _, c := range r.comparisons {
		cases = append(cases, c.none, c.headgate)
	}
	if err := b.interleave("objects", cases, b.plan.rounds); err != nil {
		return err
	}
	t := table{Title: "The object built in beside " + b.against, Note: "ns", Header: []string{"case", "other", "built in", "saved", "quartiles"}}
	for _, c := range r.comparisons {
		saved := added(c.none.typical, c.headgate.typical)
		t.row(c.name, ns(summary(c.none.typical)), ns(summary(c.headgate.typical)), ns(saved), spread(saved))
	}
	b.report.table(t)
	return nil
}

// add adds the cases of a flavour with so many Services.
func (r *rival) add(f flavour, services int) error {
	m, err := r.b.newMaker(f, r.bare)
	if err != nil {
		return err
	}
	r.closers = append(r.closers, m.close)
	to := newTargets(f.service, services, servicePort)
	name := fmt.Sprintf("connect(), %s, %s Services", f.name, count(services))
	err = r.pair(name, f, services, func(g *group) (*kase, error) { return m.kase(name, g, to, backendPort) })
	if err != nil || f.kind == unix.SOCK_STREAM {
		return err
	}
	if services > 1 {
		name := "connect(), " + f.name + ", an address that is none"
		none := newTargets(f.foreign, 1, servicePort)
		return r.pair(name, f, services, func(g *group) (*kase, error) { return m.kase(name, g, none, servicePort) })
	}
	if err := r.addExchanges(f, services, to); err != nil {
		return err
	}
	return r.pair("socket(), connect(), close(), "+f.name, f, services, func(g *group) (*kase, error) {
		return &kase{group: g, n: r.b.plan.calls / 2, op: life(to, wholeLife)}, nil
	})
}

// addExchanges adds the cases of an unconnected socket, also of one that asks no Service.
func (r *rival) addExchanges(f flavour, services int, to *targets) error {
	none := newTargets(f.backend, 1, backendPort)
	for _, one := range []struct {
		name  string
		timed call
		to    *targets
	}{{"sendto()", sendTo, to}, {"recvfrom()", receiveFrom, to}, {"sendto() no Service", sendTo, none}} {
		err := r.pair(one.name+", "+f.name, f, services, func(g *group) (*kase, error) {
			e, err := r.b.newExchange(r.bare, g, one.to)
			if err != nil {
				return nil, err
			}
			r.closers = append(r.closers, e.close)
			return &kase{n: r.b.plan.calls / 2, op: e.call(one.timed)}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pair adds one case for each of the two objects.
func (r *rival) pair(name string, f flavour, services int, newKase func(*group) (*kase, error)) error {
	other, err := r.b.productOf("against", r.object, f, services, 10)
	if err != nil {
		return err
	}
	own, err := r.b.product(f, services, 10)
	if err != nil {
		return err
	}
	c := &comparison{scenario: scenario{name: name}}
	if c.none, err = newKase(other); err != nil {
		return err
	}
	c.headgate, err = newKase(own)
	r.comparisons = append(r.comparisons, c)
	return err
}

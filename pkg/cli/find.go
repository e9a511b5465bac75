package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

// inTurn returns how to go through items.
func inTurn(items []item) func(do func(item) error) error {
	return func(do func(item) error) error {
		for _, one := range items {
			if err := do(one); err != nil {
				return err
			}
		}
		return nil
	}
}

// collect returns what a person wants, and an error where there is no such thing.
func (n *grammar) collect(s *sight) ([]item, error) { return n.collectOr(s, n.mayBeEmpty) }

// collectAny returns what a person wants, or nothing.
func (n *grammar) collectAny(s *sight) ([]item, error) {
	return n.collectOr(s, func(*sight) error { return nil })
}

func (n *grammar) collectOr(s *sight, mayBeEmpty func(*sight) error) (items []item, err error) {
	err = n.find(s, mayBeEmpty, func(one item) error {
		items = append(items, one)
		return nil
	})
	return items, err
}

// find calls do with what a person wants, and asks whether it is right that nothing is found.
func (n *grammar) find(s *sight, mayBeEmpty func(*sight) error, do func(item) error) error {
	s.rates.begin(time.Now())
	return s.env.look(func(r *datapath.Reader) error {
		s.Reader = r
		found := false
		err := n.each(s, func(one item) error {
			found = true
			return do(one)
		})
		if err != nil || found || s.wanted.everything() {
			return err
		}
		return mayBeEmpty(s)
	})
}

// each calls do with what is wanted, in order. Only where that is not the one in which things are read, all are kept.
func (n *grammar) each(s *sight, do func(item) error) error {
	var all []item
	err := n.read(s, func(one *item) error {
		switch {
		case !s.wanted.wants(*one):
			return nil
		case n.compare == nil && s.less == nil:
			return do(*one)
		}
		all = append(all, *one)
		return nil
	})
	if err != nil {
		return err
	}
	for _, order := range []func(a, b item) int{n.compare, s.less} {
		if order != nil {
			slices.SortStableFunc(all, order)
		}
	}
	return inTurn(all)(do)
}

// mayBeEmpty says whether it is right that nothing is found: there is such a Service, or
// such a namespace, or nobody knows which addresses come.
func (n *grammar) mayBeEmpty(s *sight) error {
	if n.passing && s.wanted.isAddress() {
		return nil
	}
	if n.namespaced {
		services, err := s.Services()
		if err != nil {
			return err
		}
		for id := range services {
			service, err := s.Service(id)
			if err != nil || s.wanted.owns(service) {
				return err
			}
		}
	}
	if s.wanted.word == "" {
		return fmt.Errorf("no Service is in namespace %s", lb.Quote(s.wanted.namespace))
	}
	return n.nothingIs(s.wanted.word)
}

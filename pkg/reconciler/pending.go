package reconciler

import (
	"slices"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// pending is what is planned and not applied yet, in order. The zero value is nothing.
type pending struct {
	ops  []plan.Op
	runs []run
}

// run is operations of one owner that follow each other.
type run struct {
	of  owner
	ops int
}

// owner is whom operations are for: a Service, a sweep, or the node, which is the zero value.
type owner struct {
	service lb.ServiceName
	sweep   bool
}

func (o owner) isService() bool { return o.service != (lb.ServiceName{}) }

// add appends operations of an owner.
func (p *pending) add(of owner, ops []plan.Op) {
	if len(ops) == 0 {
		return
	}
	p.ops = append(p.ops, ops...)
	if last := len(p.runs) - 1; last >= 0 && p.runs[last].of == of {
		p.runs[last].ops += len(ops)
		return
	}
	p.runs = append(p.runs, run{of, len(ops)})
}

// drop removes the first n operations, which are done.
func (p *pending) drop(n int) {
	p.ops = p.ops[n:]
	for len(p.runs) > 0 && n >= p.runs[0].ops {
		n -= p.runs[0].ops
		p.runs = p.runs[1:]
	}
	if n > 0 {
		p.runs[0].ops -= n
	}
}

// first returns the owner of the first operation.
func (p *pending) first() (of owner) {
	if len(p.runs) > 0 {
		of = p.runs[0].of
	}
	return of
}

// sweeps says whether any of the operations is of a sweep.
func (p *pending) sweeps() bool {
	return slices.ContainsFunc(p.runs, func(r run) bool { return r.of.sweep })
}

// append appends what is pending elsewhere.
func (p *pending) append(q pending) {
	p.ops = append(p.ops, q.ops...)
	p.runs = append(p.runs, q.runs...)
}

package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// algorithms measures what a choice costs by each algorithm, and what its table
// costs to fill.
func (b *bench) algorithms() error {
	if err := b.choices(); err != nil {
		return err
	}
	return b.tables()
}

// choices measures connect() by each algorithm beside random, over ten backends,
// and those that look at all backends over more.
func (b *bench) choices() error {
	w := &wiring{b: b}
	defer w.close()
	add := func(a lb.Algorithm, backends int) {
		if w.err != nil {
			return
		}
		g, err := b.product(udp4.by(a), 1, backends)
		w.check(err)
		if w.err == nil {
			w.connects(fmt.Sprintf("%s over %s", a, count(backends)), fmt.Sprintf("%s_%d", a, backends), "connect4", g, serviceNet4, 1)
		}
	}
	for a := lb.Random; a <= lb.Latency; a++ {
		add(a, 10)
	}
	for _, backends := range []int{100, 256, 1000} {
		add(lb.LC, backends)
		add(lb.P2C, backends)
	}
	if w.err != nil {
		return w.err
	}
	if err := b.countAllRuns(w.runners); err != nil {
		return err
	}
	t := table{
		Title:  "Run time of connect4 by algorithm, ns per run by the kernel's statistics",
		Note:   "Means of batches, median of rounds.",
		Header: []string{"algorithm", "ns per run", "quartiles", "over random"},
	}
	for _, r := range w.runners {
		s := summary(r.ns)
		b.report.add("algorithms/"+r.key, "ns", s)
		t.row(r.name, ns(s), spread(s), ns(added(r.ns, w.runners[0].ns)))
	}
	b.report.table(t)
	return nil
}

// tables measures planning a Service, and planning one backend less, without a
// kernel; and the slots that this writes.
func (b *bench) tables() error {
	t := table{
		Title: "Tables by algorithm and number of backends",
		Note: "Filling a table, and planning a change by one backend: medians of rounds. The bytes are those of all slots of a Service, with the list of " +
			"member backends. Moved: slots that change when one backend goes, divided by those that named it.",
		Header: []string{"algorithm", "backends", "bytes", "new, µs", "changed, µs", "slots written", "moved ÷ ideal"},
	}
	for _, a := range []lb.Algorithm{lb.Random, lb.Maglev, lb.Stable} {
		for _, backends := range []int{3, 10, 100, 1000, 10000} {
			if err := b.step("%s table of %s backends", a, count(backends)); err != nil {
				return err
			}
			if err := b.fillTable(&t, a, backends); err != nil {
				return err
			}
		}
	}
	b.report.table(t)
	return nil
}

func (b *bench) fillTable(t *table, a lb.Algorithm, backends int) error {
	var fresh, changed []float64
	var bytes, written int
	all := frontends(udp4.by(a), 0, backends)
	all[0].Members = all[0].Views[lb.Internal].Backends
	less := slices.Clone(all)
	less[0].Views[lb.Internal].Backends = slices.Delete(slices.Clone(all[0].Views[lb.Internal].Backends), backends/2, backends/2+1)
	less[0].Views[lb.External], less[0].Members = less[0].Views[lb.Internal], less[0].Views[lb.Internal].Backends
	for range min(b.plan.rounds, 5) {
		p := plan.New(plan.Sizes{})
		began := time.Now()
		if _, err := p.Set(serviceName(0), all); err != nil {
			return err
		}
		fresh = append(fresh, float64(time.Since(began).Microseconds()))
		bytes = int(4 * p.Needs().Slots)
		began = time.Now()
		ops, err := p.Set(serviceName(0), less)
		if err != nil {
			return err
		}
		changed = append(changed, float64(time.Since(began).Microseconds()))
		written = slotsWritten(ops)
	}
	moved := "-"
	if a.Hashed() {
		ideal := float64(bytes/4-backends) / float64(backends)
		moved = fmt.Sprintf("%.2f", float64(written)/ideal)
	}
	key := fmt.Sprintf("tables/%s_%d", a, backends)
	b.report.add(key+"/new", "us", summary(fresh))
	b.report.add(key+"/changed", "us", summary(changed))
	t.row(a.String(), count(backends), count(bytes), ns(summary(fresh)), ns(summary(changed)), count(written), moved)
	return nil
}

// slotsWritten counts the slots of tables for clients that operations write.
func slotsWritten(ops []plan.Op) (n int) {
	for _, op := range ops {
		switch op := op.(type) {
		case plan.PutSlots:
			n += len(op.Slots)
		case plan.PutTable:
			if n == 0 {
				n = len(op.Backends)
			}
		}
	}
	return n
}

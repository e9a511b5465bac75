package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// starts are the times of several starts, with their parts in ms.
type starts struct {
	took  []float64
	parts map[string][]float64
}

func (s *starts) add(n *node) {
	s.took = append(s.took, ms(n.took))
	var known time.Duration
	for name, d := range n.parts {
		s.parts[name] = append(s.parts[name], ms(d))
		known += d
	}
	s.parts["select endpoints and plan"] = append(s.parts["select endpoints and plan"], ms(n.took-known))
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// start measures a start on an empty node, and one on what an earlier process
// left.
func (b *bench) start() error {
	cold, warm := starts{parts: map[string][]float64{}}, starts{parts: map[string][]float64{}}
	var writes uint64
	for i := range b.plan.starts {
		if err := b.step("start %d of %d", i+1, b.plan.starts); err != nil {
			return err
		}
		u := plainServices(b.plan.big, endpointsEach)
		g, err := b.emptyNode(fmt.Sprintf("start-%d", i))
		if err != nil {
			return err
		}
		before, err := b.startOnce(g, u, &cold)
		if err != nil {
			return err
		}
		after, err := b.startOnce(g, u, &warm)
		if err != nil {
			return err
		}
		writes += after - before
		if err := b.drop(g); err != nil {
			return err
		}
	}
	if writes != 0 {
		return fmt.Errorf("restarts with unchanged input made %d writes", writes)
	}
	b.reportStarts(cold, warm)
	return nil
}

// startOnce starts and stops an agent, and returns how many writes the maps
// have seen.
func (b *bench) startOnce(g *group, u lb.Update, s *starts) (uint64, error) {
	runtime.GC()
	n, err := b.startNode(g, u)
	if err != nil {
		return 0, err
	}
	defer n.stop()
	s.add(n)
	return n.dp.Writes(), nil
}

func (b *bench) reportStarts(cold, warm starts) {
	t := table{
		Title: fmt.Sprintf("Start with %s Services, %d endpoints each", count(b.plan.big), endpointsEach),
		Note: "In ms, from objects in memory until all of it is in the kernel and in force. Programs are loaded once, when it is known how large the maps have to be, and verified while it is planned what these are to hold, which is written meanwhile: planning has what is left of the time. " +
			"A restart adopts what is pinned and made no write.",
		Header: []string{"part", "cold start", "quartiles", "restart", "quartiles"},
	}
	line := func(name string, cold, warm []float64) {
		c, w := summary(cold), summary(warm)
		t.row(name, tenth(c.Median), tenths(c), tenth(w.Median), tenths(w))
	}
	names := []string{}
	for name := range cold.parts {
		names = append(names, name)
	}
	slices.Sort(names)
	line("all", cold.took, warm.took)
	for _, name := range names {
		line(name, cold.parts[name], warm.parts[name])
	}
	b.report.add("start/cold", "ms", summary(cold.took))
	b.report.add("start/restart", "ms", summary(warm.took))
	b.report.table(t)
}

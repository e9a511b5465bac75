package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
)

// recountRounds is how often everything is counted at most.
const recountRounds = 7

// recounts measures what an agent takes to count anew the connections in flight of all backends,
// beside flows that are there already.
func (b *bench) recounts(cases []*packetCase) error {
	t := table{
		Title:  "Connections in flight are counted anew: CPU time of the agent, ms",
		Note:   "Every half a minute, beside changes. A look through all slots of sockets and all ways of the flow table; where it finds a number that is off, two more follow.",
		Header: []string{"flows", "ways", "ms", "quartiles"},
	}
	for i, c := range cases {
		last := i+1 == len(cases) || cases[i+1].node != c.node
		if !strings.HasPrefix(c.key, "later_") || !last {
			continue
		}
		took, err := c.node.recount(min(b.plan.rounds, recountRounds))
		if err != nil {
			return fmt.Errorf("count %s flows: %w", count(c.flows), err)
		}
		s := summary(took)
		b.report.add(fmt.Sprintf("recount/%d", c.flows), "ms", s)
		t.row(count(c.flows), count(int(c.node.cfg.Flows)), tenth(s.Median), tenths(s))
	}
	b.report.table(t)
	return nil
}

// recount counts the flows of a node several times, and returns the CPU times in ms.
func (n *packetNode) recount(times int) (took []float64, err error) {
	d, err := datapath.Open(n.cfg)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for i := range times + 1 {
		before, err := threadTime()
		if err == nil {
			_, err = d.Recount()
		}
		if err != nil {
			return nil, err
		}
		after, err := threadTime()
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first one corrects, and faults memory in
			took = append(took, (after-before)*1e3)
		}
	}
	return took, nil
}

// threadTime returns the CPU time of this thread, in seconds.
func threadTime() (float64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of this thread: %w", err)
	}
	return float64(t.Nano()) / 1e9, nil
}

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// cell is what came of a kind of load in a step.
type cell struct {
	done, failed, reset, late uint64
	// others are datagrams of unconnected sockets that failed where kube-proxy alone served: of
	// what is in flight when a backend leaves, it forgets who answers.
	others  uint64
	longest time.Duration
}

// Limits of what is not bad.
const (
	// An operation takes a millisecond. A SYN that is lost comes again after a second.
	lateFrom = 900 * time.Millisecond
	// A load balancer that asks once a second misses one probe.
	healthLimit = time.Second
)

func (c cell) String() string {
	if c.failed+c.reset+c.late == 0 && c.others > 0 {
		return fmt.Sprintf("0 of %d (%d of kube-proxy's)", c.done, c.others)
	}
	if c.failed+c.reset+c.late+c.done == 0 {
		return "**nothing was done**"
	}
	if c.failed+c.reset+c.late == 0 {
		return fmt.Sprintf("0 of %d", c.done)
	}
	return fmt.Sprintf("**%d failed, %d reset, %d late** (%s) of %d", c.failed, c.reset, c.late, c.longest.Round(time.Millisecond), c.done)
}

// cells returns what came of a kind in each step, inside or outside.
func (d *drill) cells(kind string, isOutside bool) []cell {
	cells := make([]cell, len(d.steps))
	for p, outcomes := range d.outcomes {
		if p.outside != isOutside {
			continue
		}
		for _, o := range outcomes {
			if o.Name == kind {
				d.addTo(cells, o, d.nodes[p.node])
			}
		}
	}
	return cells
}

func (d *drill) addTo(cells []cell, o outcome, n *node) {
	at := 0
	for _, p := range o.Run.TimeLine {
		begins, ends := o.Run.Started.Add(p.At), o.Run.Started.Add(p.At+o.Run.Interval)
		// By the end of the interval: what is due in it belongs to the step that goes on.
		for at+1 < len(d.steps) && ends.After(d.steps[at+1].began) {
			at++
		}
		c := &cells[at]
		c.done += p.Completed
		// Whenever a time without an answer is over: what was due in a step was lost in it.
		if o.Name == unconnected && (!ends.After(n.served.from) || !begins.Before(n.served.to)) {
			c.others += p.DueFailed
		} else {
			c.failed += p.DueFailed
		}
		c.reset += p.Broken
		if p.Max >= lateFrom {
			c.late++
			c.longest = max(c.longest, p.Max)
			d.late = append(d.late, fmt.Sprintf("%s, by way of %s: %s late (%s) by %s", o.Name, n.name, d.steps[at].name, p.Max.Round(time.Millisecond), ends.UTC().Format("15:04:05.000")))
		}
	}
}

// longest returns the longest time without an answer to any of some probes that began in a time.
func longest(probes []*probe, from, to time.Time) (gap time.Duration) {
	for _, p := range probes {
		gap = max(gap, p.longest(from, to))
	}
	return gap
}

// report writes the table, and says whether something in it is bad.
func (d *drill) report(w io.Writer) (bad bool) {
	fmt.Fprintf(w, "\n### kube-proxy in mode %s\n\n| step | s |", d.mode)
	var columns [][]cell
	for _, where := range []string{"in", "out"} {
		for _, kind := range kinds {
			fmt.Fprintf(w, " %s %s |", where, kind)
			columns = append(columns, d.cells(kind, where == "out"))
		}
	}
	fmt.Fprintf(w, " told | replaced | health | metrics |\n|%s\n", strings.Repeat("---|", len(columns)+6))
	for i, s := range d.steps[:max(0, len(d.steps)-1)] {
		end := d.steps[i+1].began
		fmt.Fprintf(w, "| %s | %.0f |", s.name, end.Sub(s.began).Seconds())
		for k, cells := range columns {
			c := cells[i]
			fmt.Fprintf(w, " %s |", c)
			bad = bad || c.bad(s, kinds[k%len(kinds)], k >= len(kinds))
		}
		replaced := d.rollouts.within(s.began, end)
		health, metrics := longest(d.probes, s.began, end), longest(d.metrics, s.began, end)
		bad = bad || health > healthLimit || metrics > healthLimit || replaced == 0
		fmt.Fprintf(w, " %d | %d | %.1f s | %.1f s |\n", s.told, replaced, health.Seconds(), metrics.Seconds())
	}
	fmt.Fprintln(w)
	for _, s := range d.steps {
		if s.lost != "" {
			fmt.Fprintf(w, "%s: %s\n", s.name, s.lost)
			bad = true
		}
	}
	for _, late := range d.late {
		fmt.Fprintln(w, late)
	}
	for p, outcomes := range d.outcomes {
		for _, o := range outcomes {
			if o.Err != "" || o.Run.Failed > 0 {
				fmt.Fprintf(w, "%s, %s: %s %s\n", p.name, o.Name, o.Run.ErrorText(), o.Err)
				bad = bad || o.Err != ""
			}
		}
	}
	return bad
}

// bad says whether a cell is more than what the step is known to do: sockets that are told
// learn of it by one error.
func (c cell) bad(s *step, kind string, isOutside bool) bool {
	if s.told > 0 && isConnectedUDP(kind) && !isOutside {
		return c.late > 0 || c.failed > uint64(s.told)
	}
	return c.failed+c.reset+c.late > 0 || c.done == 0
}

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
)

// Steps of a drill that was not: of each the second is looked at.
const (
	interval = 500 * time.Millisecond
	stepTook = 3 * time.Second
	second   = stepTook + interval // into the second step
)

// goodDrill is one in which nothing went wrong, under all loads of a place inside and of one outside.
func goodDrill() *drill {
	d := &drill{mode: "iptables", outcomes: map[place][]outcome{}, nodes: []*node{{name: "node-a"}}}
	began := time.Now()
	for i, name := range []string{"kube-proxy alone", "headgate migrate run", "end"} {
		d.steps = append(d.steps, &step{name: name, began: began.Add(time.Duration(i) * stepTook)})
	}
	d.nodes[0].served.from, d.nodes[0].served.to = began, began.Add(time.Hour)
	d.probes, d.metrics = []*probe{{what: "node-a:10256"}}, []*probe{{what: "node-a:10249"}}
	d.rollouts.times = []time.Time{began.Add(time.Second), began.Add(stepTook + time.Second)}
	for _, p := range []place{{name: "pod"}, {name: "outside", outside: true}} {
		for _, kind := range kinds {
			o := outcome{Name: kind, Run: result.Run{Started: began, Interval: interval}}
			for at := time.Duration(0); at < 2*stepTook; at += interval {
				o.Run.TimeLine = append(o.Run.TimeLine, result.Point{At: at, Completed: 5, Max: time.Millisecond})
			}
			d.outcomes[p] = append(d.outcomes[p], o)
		}
	}
	return d
}

// of returns the point of a kind of load that is within the second step.
func (d *drill) of(kind string, isOutside bool) *result.Point {
	for p, outcomes := range d.outcomes {
		for _, o := range outcomes {
			if p.outside == isOutside && o.Name == kind {
				return &o.Run.TimeLine[second/interval]
			}
		}
	}
	panic(kind)
}

// Each fault is one that a drill must not pass with, or one of those that it has to let pass.
func TestADrillFailsByWhatItMustNotShow(t *testing.T) {
	isServed := func(d *drill) { d.nodes[0].served.from = d.steps[1].began.Add(stepTook) }
	for _, tc := range []struct {
		name string
		make func(d *drill)
		want string // in the report of a bad drill, "" for one that passes
	}{
		{"nothing", func(*drill) {}, ""},
		{"a new connection fails", func(d *drill) { d.of("new TCP", false).DueFailed = 1 }, "**1 failed, 0 reset, 0 late**"},
		{"one of outside does", func(d *drill) { d.of("new TCP", true).DueFailed = 1 }, "**1 failed, 0 reset, 0 late**"},
		{"a held one is reset", func(d *drill) { d.of("held TCP", true).Broken = 1 }, "**0 failed, 1 reset, 0 late**"},
		{"an operation takes as long as a SYN that comes again", func(d *drill) { d.of("short TCP", false).Max = lateFrom }, "**0 failed, 0 reset, 1 late** (900ms)"},
		{"whom that concerns is named", func(d *drill) { d.of("short TCP", false).Max = lateFrom }, "short TCP, by way of node-a: headgate migrate run late (900ms)"},
		{"one takes less", func(d *drill) { d.of("short TCP", false).Max = lateFrom - 1 }, ""},
		{"a datagram is lost where Headgate serves", func(d *drill) { d.of("sendto UDP", true).DueFailed = 1 }, "**1 failed"},
		{"one is lost before it does", func(d *drill) { isServed(d); d.of("sendto UDP", true).DueFailed = 1 }, ""},
		{"one is lost after it did", func(d *drill) { d.nodes[0].served.to = d.steps[1].began; d.of("sendto UDP", true).DueFailed = 1 }, ""},
		{"one is lost while it begins to", func(d *drill) {
			d.nodes[0].served.from = d.steps[1].began.Add(interval + interval/2)
			d.of("sendto UDP", true).DueFailed = 1
		}, "**1 failed"},
		{"one is lost while it ceases to", func(d *drill) {
			d.nodes[0].served.to = d.steps[1].began.Add(interval + interval/2)
			d.of("sendto UDP", true).DueFailed = 1
		}, "**1 failed"},
		{"that of a connected socket is before it does", func(d *drill) { isServed(d); d.of("UDP", true).DueFailed = 1 }, "**1 failed"},
		{"that of a held socket is before it does", func(d *drill) { isServed(d); d.of("held UDP", true).DueFailed = 1 }, "**1 failed"},
		{"one takes long before it does", func(d *drill) { isServed(d); d.of("sendto UDP", true).Max = lateFrom }, "1 late"},
		{"what failed here was due in a step before", func(d *drill) { d.of("new TCP", false).Failed = 1 }, ""},
		{"sockets that are never connected cannot be told", func(d *drill) { d.steps[1].told = 2; d.of("sendto UDP", false).DueFailed = 1 }, "**1 failed"},
		{"a connection to a Service of policy Local fails", func(d *drill) { d.of("Local new TCP", true).DueFailed = 1 }, "**1 failed"},
		{"one of them is reset", func(d *drill) { d.of("Local held TCP", true).Broken = 1 }, "1 reset"},
		{"no backend is replaced in a step", func(d *drill) { d.rollouts.times = d.rollouts.times[:1] }, "| 0 | 0 | 0.0 s | 0.0 s |"},
		{"nobody answers for metrics for too long", func(d *drill) { d.metrics[0].note(gap{d.steps[1].began, healthLimit + 1}) }, "| 0.0 s | 1.0 s |"},
		{"a connection fails before it does", func(d *drill) { isServed(d); d.of("new TCP", true).DueFailed = 1 }, "**1 failed"},
		{"sockets learn that they are told", func(d *drill) { d.steps[1].told = 2; d.of("held UDP", false).DueFailed = 2 }, ""},
		{"more than were told fail", func(d *drill) { d.steps[1].told = 2; d.of("held UDP", false).DueFailed = 3 }, "**3 failed"},
		{"sockets were told in another step", func(d *drill) { d.steps[0].told = 2; d.of("held UDP", false).DueFailed = 1 }, "**1 failed"},
		{"nobody tells clients outside", func(d *drill) { d.steps[1].told = 2; d.of("held UDP", true).DueFailed = 1 }, "**1 failed"},
		{"who is told is late", func(d *drill) { d.steps[1].told = 2; d.of("held UDP", false).Max = lateFrom }, "1 late"},
		{"connections fail while sockets are told", func(d *drill) { d.steps[1].told = 2; d.of("held TCP", false).DueFailed = 1 }, "**1 failed"},
		{"nobody answers a probe for too long", func(d *drill) { d.probes[0].note(gap{d.steps[1].began, healthLimit + 1}) }, "| 1.0 s |"},
		{"a load balancer misses one probe", func(d *drill) { d.probes[0].note(gap{d.steps[1].began, healthLimit}) }, ""},
		{"connections are lost on the way back", func(d *drill) { d.steps[1].lost = "4 connections of clients outside lost: so" }, "4 connections of clients outside lost: so"},
		{"a load does nothing", func(d *drill) {
			for _, o := range d.outcomes[place{name: "pod"}] {
				for i := range o.Run.TimeLine[second/interval-1:] {
					o.Run.TimeLine[second/interval-1+time.Duration(i)].Completed = 0
				}
			}
		}, "**nothing was done**"},
		{"a load does not run", func(d *drill) { d.outcomes[place{name: "pod"}][0].Err = "no such device" }, "no such device"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := goodDrill()
			tc.make(d)
			var out strings.Builder
			if bad := d.report(&out); bad != (tc.want != "") || !strings.Contains(out.String(), tc.want) {
				t.Errorf("bad is %v, and the report has no %q:\n%s", bad, tc.want, out.String())
			}
		})
	}
}

// A drill reads from what the command says how many sockets it has told and which connections it has lost.
func TestADrillReadsWhatTheCommandSays(t *testing.T) {
	const run = `acts     sockets-told: 12 connected UDP sockets go through kube-proxy's rules: told 12 connected UDP sockets
`
	const back = `acts     headgate-removed: programs of Headgate are in force: removed Headgate; handed 657 connections of clients outside over to the kernel's connection tracking; 4 connections of clients outside lost: the kernel has tracked packets of theirs each time; told 22 connected UDP sockets
`
	for _, tc := range []struct {
		said string
		told int
		lost string
	}{
		{run, 12, ""},
		{back, 22, "4 connections of clients outside lost: the kernel has tracked packets of theirs each time"},
		{"done     sockets-told: 0 connected UDP sockets go through kube-proxy's rules\n", 0, ""},
	} {
		if told, lost := toldIn(tc.said), lostIn(tc.said); told != tc.told || lost != tc.lost {
			t.Errorf("told %d, lost %q, want %d and %q, by\n%s", told, lost, tc.told, tc.lost, tc.said)
		}
	}
}

// A backend is removed only after another has been ready for long, and has ended for long before.
func TestARolloutEndsWhatIsOldest(t *testing.T) {
	const steps = 12
	var all []int
	readySince, endedSince := map[int]int{}, map[int]int{}
	for now := range steps {
		all = append(all, now)
		ready, ending, gone := byAge(all)
		if len(ready)+len(ending)+len(gone) != len(all) || ready[len(ready)-1] != now {
			t.Fatalf("of %v are ready %v, ending %v, gone %v", all, ready, ending, gone)
		}
		for _, one := range ready {
			if _, ok := readySince[one]; !ok {
				readySince[one] = now
			}
		}
		for _, one := range ending {
			if next, ok := readySince[one+1]; !ok || (now-next)*int(rollEvery/time.Millisecond) < int(afterTime/time.Millisecond) {
				t.Errorf("at %d backend %d ends, and the next is ready since %d", now, one, next)
			}
			if _, ok := endedSince[one]; !ok {
				endedSince[one] = now
			}
		}
		for _, one := range gone {
			if since, ok := endedSince[one]; !ok || now-since < endingFor {
				t.Errorf("at %d backend %d is gone, and ends since %d", now, one, since)
			}
		}
	}
}

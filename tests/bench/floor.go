package main

import (
	"fmt"
	"net/netip"
	"runtime"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
)

// flowWays is how many directions of flows a set of the flow table has.
const flowWays = 7

// A floorCase is a packet that does nothing but touch memory as one of a flow has to.
type floorCase struct {
	*packetCase
	what string
}

// floor measures what memory alone costs a packet, in a table as large as the flow table
// of so many flows is in the section about packets.
func (b *bench) floor() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t := table{
		Title:  "What memory alone costs a packet, ns",
		Header: []string{"what a program touches", "flows", "net", "quartiles"},
		Note: "Measured as packets are, with programs that touch a table of the size of the flow table where flows would be, and do nothing else. " +
			"What the loop of test runs hides, up to 34 ns, is missing here as it is from packets.",
	}
	for _, flows := range b.plan.flows {
		ways := max(1<<18, uint32(flows)*5/2)
		if flows == 1 {
			continue
		}
		cases, closeAll, err := floorCases(flows, ways/flowWays)
		if err != nil {
			return err
		}
		for range b.plan.rounds {
			for _, c := range cases {
				if err := c.measure(b.plan.packets); err != nil {
					closeAll()
					return fmt.Errorf("%s: %w", c.what, err)
				}
			}
		}
		closeAll()
		for _, c := range cases[1:] {
			s := added(c.ns, cases[0].ns)
			b.report.add(fmt.Sprintf("floor/%s/%d", c.program, flows), "ns", s)
			t.row(c.what, count(flows), ns(s), spread(s))
		}
	}
	b.report.table(t)
	return nil
}

// floorCases are programs that touch so many sets; the first one does not.
func floorCases(flows int, sets uint32) (cases []floorCase, closeAll func(), err error) {
	var o floorObjects
	n := &packetNode{replay: &replayObjects{}}
	closeAll = func() { o.Close(); n.replay.Close() }
	if err := loadReplayObjects(n.replay, nil); err != nil {
		return nil, closeAll, fmt.Errorf("load the program that replays packets: %w", err)
	}
	spec, err := loadFloor()
	if err != nil {
		return nil, closeAll, err
	}
	spec.Maps["lines"].MaxEntries = sets
	if err := spec.Variables["sets"].Set(sets); err != nil {
		return nil, closeAll, err
	}
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		return nil, closeAll, fmt.Errorf("load the programs that touch memory: %w", err)
	}
	n.programs = map[string]*ebpf.Program{"": n.replay.Nothing, "later": o.Later, "later_at_once": o.LaterAtOnce, "first": o.First}
	for _, c := range []struct{ program, what string }{
		{"", "nothing"},
		{"later", "a later packet: a set's first line, then the line that it names"},
		{"later_at_once", "the same, both lines at once"},
		{"first", "a first packet: the same in two sets, which are written"},
	} {
		peer := netip.AddrPortFrom(nth(serviceNet4, 1), servicePort)
		cases = append(cases, floorCase{&packetCase{flows: flows, node: n, program: c.program, protocol: lb.TCP, peer: peer, flags: ack}, c.what})
	}
	return cases, closeAll, nil
}

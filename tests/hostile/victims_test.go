package hostile_test

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// caller is a client of one address, which it asks all the time.
type caller struct {
	who    string // the machine
	client *load.Client
	spec   load.Spec
}

func (v *caller) String() string {
	return fmt.Sprintf("%s %s %s", v.who, v.spec.Kind, v.spec.Targets[0])
}

// answersOf are the servers that may answer for an address of the victim's.
func answersOf(target netip.AddrPort) []string {
	switch {
	case slices.Contains(nodeServers, target):
		return []string{"node"}
	case target == podServer:
		return []string{"web-1"}
	}
	return []string{"web-1", "web-2"}
}

// addVictims starts the clients of the victim's Service, and of servers of the node.
func (s *stage) addVictims(own ...netip.AddrPort) {
	s.tb.Helper()
	for _, l := range []struct {
		who     string
		kind    load.Kind
		targets []netip.AddrPort
	}{
		{"client", load.CRR, append([]netip.AddrPort{clusterIP, podServer}, own...)},
		{"client", load.UDP, []netip.AddrPort{clusterIP}},
		{"node-a", load.CRR, append([]netip.AddrPort{clusterIP}, own...)},
		{"outside", load.CRR, append([]netip.AddrPort{nodePort, loadBalancer}, own...)},
		{"outside", load.UDP, []netip.AddrPort{nodePort}},
	} {
		for _, target := range l.targets {
			s.addCaller(l.who, load.Spec{Kind: l.kind, Targets: []netip.AddrPort{target}, Rate: 150 / float64(len(l.targets))})
		}
	}
}

// addCaller starts one client. Each operation has a socket of its own.
func (s *stage) addCaller(who string, spec load.Spec) {
	s.tb.Helper()
	cgroup := s.cgroup
	if who == "outside" {
		cgroup = nil
	}
	c, err := load.StartClient(s.topology.Namespace(who), cgroup, who, role("client"))
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { _ = c.Close() })
	spec.Connections, spec.Senders, spec.PerSocket, spec.Unbound = 4, 1, 1, true
	spec.Timeout, spec.Duration, spec.Interval = 10*time.Second, 2*time.Hour, 2*time.Hour
	spec.CheckPeer, spec.Unchecked, spec.Outside = true, true, true
	s.callers = append(s.callers, &caller{who, c, spec})
}

// harm is what became of the victims' traffic.
type harm struct {
	answered, failed, stolen int
	moved                    float64 // of the traffic of one client, from one backend to the other
	examples                 []string
}

// connect has all victims connect until the context ends.
func (s *stage) connect(ctx context.Context) (h harm) {
	s.tb.Helper()
	runs, errs := make([]result.Run, len(s.callers)), make([]error, len(s.callers))
	var all sync.WaitGroup
	for i, v := range s.callers {
		all.Go(func() { runs[i], errs[i] = v.client.Run(ctx, v.spec, nil) })
	}
	all.Wait()
	for i, v := range s.callers {
		if errs[i] != nil {
			s.tb.Fatal(errs[i])
		}
		h.add(v, runs[i])
	}
	return h
}

// add counts what came of one client.
func (h *harm) add(v *caller, run result.Run) {
	if h.failed += int(run.Failed); run.Failed > 0 {
		h.examples = append(h.examples, fmt.Sprintf("%s: %s", v, run.ErrorText()))
	}
	shared, may := [2]int{}, answersOf(v.spec.Targets[0])
	for name, count := range run.Answers() {
		n := int(count)
		h.answered += n
		i := slices.Index(may, name)
		switch {
		case i < 0:
			h.stolen += n
			h.examples = append(h.examples, fmt.Sprintf("%s: %d to %s", v, n, name))
		case len(may) == 2:
			shared[i] += n
		}
	}
	h.moved = max(h.moved, movedOf(shared))
}

// movedOf is the share that one of two equal backends has lost to the other, beyond
// what chance gives: six standard deviations.
func movedOf(shared [2]int) float64 {
	n := float64(shared[0] + shared[1])
	if n == 0 {
		return 0
	}
	lost := math.Abs(float64(shared[0]-shared[1])) / n
	if lost < 6/math.Sqrt(n) {
		return 0
	}
	return lost
}

// field is the number behind a word of a text, 0 if there is none.
func field(text, word string) (n int) {
	if _, rest, found := strings.Cut(text, word); found {
		_, _ = fmt.Sscan(rest, &n)
	}
	return n
}

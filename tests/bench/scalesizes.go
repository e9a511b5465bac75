package main

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/controlplane"
)

// sizes measures a change of one endpoint in Services of several sizes.
func (s *scaled) sizes() error {
	r, err := s.newRelay()
	if err != nil {
		return err
	}
	defer r.close()
	t := table{
		Title:  "One endpoint changes in a Service with many, in slices of 100",
		Note:   "In µs, from the watch event until the frontend in the map names the new table. CPU time and allocations are the agent's, for each change, its housekeeping a second later included.",
		Header: []string{"endpoints", "p50", "p99", "CPU time", "allocations"},
	}
	return s.withAgent("scale-sizes", []string{"--api-servers", r.url}, func(g *group, p *controlplane.Process, _ time.Duration) error {
		for i, endpoints := range s.plan.endpoints {
			if err := s.step("change one of %s endpoints", count(endpoints)); err != nil {
				return err
			}
			if err := s.sizeRow(&t, g, p, r, i, endpoints); err != nil {
				return err
			}
		}
		s.report.table(t)
		return nil
	})
}

func (s *scaled) sizeRow(t *table, g *group, p *controlplane.Process, r *relay, number, endpoints int) error {
	f, err := s.hugeService(g, number, endpoints)
	if err != nil {
		return err
	}
	defer f.close()
	var warm, d delays
	// Maps grow at first.
	for i := range 5 {
		if err := s.follow(r, f, nth(changedEndpoint(0), 100_000*(number+1)+i), &warm); err != nil {
			return err
		}
		time.Sleep(1200 * time.Millisecond)
		again, err := watchFrontend(g.root, hugeIP(number))
		if err != nil {
			return err
		}
		f.close()
		f.watchedFrontend = again
	}
	var cpu float64
	mallocs, err := s.mallocsDuring(func() error {
		before, err := cpuTime(p.PID())
		if err != nil {
			return err
		}
		for i := range s.plan.saves {
			if err := s.follow(r, f, nth(changedEndpoint(0), 100_000*(number+1)+10+i), &d); err != nil {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(1500 * time.Millisecond) // the sweep
		after, err := cpuTime(p.PID())
		cpu = after - before
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(d.fromEvent)
	n := float64(len(d.fromEvent))
	p50, p99 := d.fromEvent[len(d.fromEvent)/2].Seconds()*1e6, d.fromEvent[len(d.fromEvent)*99/100].Seconds()*1e6
	each, allocations := cpu/n*1e6, mallocs/n
	t.row(count(endpoints), us(p50), us(p99), us(each), us(allocations))
	key := fmt.Sprintf("scale/endpoints=%d/", endpoints)
	for name, v := range map[string]float64{"p50": p50, "p99": p99, "cpu": each} {
		s.report.value(key+name, "µs", v)
	}
	s.report.value(key+"allocations", "", allocations)
	return nil
}

// hugeIP returns the ClusterIP of a Service with many endpoints.
func hugeIP(number int) netip.Addr { return nth(netip.MustParseAddr("10.104.0.0"), number+1) }

// hugeService makes a Service with many endpoints and returns when all of them
// are in the maps.
func (s *scaled) hugeService(g *group, number, endpoints int) (*follower, error) {
	const each = 100
	name := fmt.Sprintf("huge-%d", endpoints)
	if err := s.post(servicesPath, apiService(name, hugeIP(number))); err != nil {
		return nil, err
	}
	first := nth(netip.MustParseAddr("10.160.0.0"), number<<17)
	var group errgroup.Group
	group.SetLimit(loaders)
	for i := range endpoints / each {
		group.Go(func() error { return s.post(slicesPath, apiSlice(name, i, nth(first, i*each+1), each)) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := s.awaitBackends(g, hugeIP(number), endpoints); err != nil {
		return nil, err
	}
	w, err := watchFrontend(g.root, hugeIP(number))
	if err != nil {
		return nil, err
	}
	middle := endpoints / each / 2
	return &follower{w, apiSlice(name, middle, nth(first, middle*each+1), each)}, nil
}

// awaitBackends returns when so many backends stand behind a ClusterIP.
func (s *scaled) awaitBackends(g *group, clusterIP netip.Addr, want int) error {
	var got int
	for limit := time.Now().Add(3 * time.Minute); time.Now().Before(limit); time.Sleep(200 * time.Millisecond) {
		i, err := datapath.Inspect(g.root)
		if err != nil {
			return err
		}
		content, err := i.Content()
		i.Close()
		if err != nil {
			return err
		}
		got = int(content.Frontends[lb.AddrPort{Addr: clusterIP, Port: servicePort, Protocol: lb.TCP}].Views[lb.Internal].Table.Size)
		if got == want {
			return s.ctx.Err()
		}
	}
	return fmt.Errorf("%d backends stand behind %s, not %d", got, clusterIP, want)
}

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/headgate/headgate/tests/controlplane"
)

// watchedFrontend is a frontend in the maps whose element is looked at.
type watchedFrontend struct {
	root  string
	place uint32
	m     *ebpf.Map
	last  []byte
}

// watchFrontend finds a ClusterIP in the maps, by its address and port as they stand there.
func watchFrontend(root string, clusterIP netip.Addr) (*watchedFrontend, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(root, "maps", "frontends"), nil)
	if err != nil {
		return nil, err
	}
	addr := clusterIP.As16()
	at := binary.BigEndian.AppendUint16(addr[:], servicePort)
	for place := range m.MaxEntries() {
		element, err := m.LookupBytes(place)
		if err != nil {
			m.Close()
			return nil, err
		}
		if bytes.Contains(element, at) {
			return &watchedFrontend{root: root, place: place, m: m, last: element}, nil
		}
	}
	m.Close()
	return nil, fmt.Errorf("%s is no frontend", clusterIP)
}

func (w *watchedFrontend) close() { _ = w.m.Close() }

// changed returns when the element was seen to be another one.
func (w *watchedFrontend) changed(ctx context.Context) (time.Time, error) {
	for limit := time.Now().Add(30 * time.Second); time.Now().Before(limit); {
		now, err := w.m.LookupBytes(w.place)
		if err != nil {
			return time.Time{}, err
		}
		if !bytes.Equal(now, w.last) {
			w.last = now
			return time.Now(), ctx.Err()
		}
		time.Sleep(20 * time.Microsecond)
	}
	return time.Time{}, fmt.Errorf("the change did not come to the kernel")
}

// follower is one Service of which endpoints are changed.
type follower struct {
	*watchedFrontend
	slice *discoveryv1.EndpointSlice
}

// delays are how long changes took, in µs.
type delays struct {
	fromEvent, fromRequest []time.Duration
}

// follow changes an endpoint of a Service and waits for it to be in the maps.
func (s *scaled) follow(r *relay, f *follower, to netip.Addr, d *delays) error {
	r.arm()
	from := time.Now()
	put := make(chan error, 1)
	go func() { put <- s.changeEndpoint(f.slice, to) }()
	at, err := f.changed(s.ctx)
	if err != nil {
		return err
	}
	if err := <-put; err != nil {
		return err
	}
	event, ok := r.stamp()
	if !ok {
		return fmt.Errorf("a change came to the kernel without an event")
	}
	d.fromEvent, d.fromRequest = append(d.fromEvent, at.Sub(event)), append(d.fromRequest, at.Sub(from))
	return nil
}

// changes measures one endpoint that changes among all Services.
func (s *scaled) changes() error {
	if err := s.step("change endpoints"); err != nil {
		return err
	}
	r, err := s.newRelay()
	if err != nil {
		return err
	}
	defer r.close()
	var d delays
	var allocations float64
	err = s.withAgent("scale-change", []string{"--api-servers", r.url}, func(g *group, _ *controlplane.Process, _ time.Duration) error {
		allocations, err = s.changesOf(g, r, &d)
		return err
	})
	if err != nil {
		return err
	}
	t := table{
		Title: fmt.Sprintf("One endpoint changes, with an API server that has %s Services, %d endpoints each", count(s.plan.big), endpointsEach),
		Note: "In µs, until the frontend in the map names the new table. The event counts from when its first byte is written to the connection of the agent, the request from when it is sent; " +
			"etcd, the API server, the agent and this program share the cores. Looking at the map takes turns of some 80 µs.",
		Header: []string{"way", "p50", "p90", "p99", "worst", "changes", "allocations each"},
	}
	s.delayRow(&t, "watch event to the map", "event", d.fromEvent, fmt.Sprintf("%.0f", allocations))
	s.delayRow(&t, "request to the map", "request", d.fromRequest, "")
	s.report.value("scale/change/allocations", "", allocations)
	s.report.table(t)
	return nil
}

// changesOf changes endpoints of Services at random, and returns how many
// allocations the agent made for each.
func (s *scaled) changesOf(g *group, r *relay, d *delays) (float64, error) {
	rng := rand.New(rand.NewPCG(7, 8))
	var followers []*follower
	defer func() {
		for _, f := range followers {
			f.close()
		}
	}()
	for _, i := range rng.Perm(s.plan.big)[:min(20, s.plan.big)] {
		w, err := watchFrontend(g.root, nth(serviceNet4, i+256))
		if err != nil {
			return 0, err
		}
		followers = append(followers, &follower{w, apiSlice(serviceName(i).Name, 0, nth(backendNet4, i*endpointsEach+1), endpointsEach)})
	}
	made, err := s.mallocsDuring(func() error {
		for i := range s.plan.changes {
			if err := s.follow(r, followers[i%len(followers)], changedEndpoint(i), d); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	})
	return made / float64(s.plan.changes), err
}

// mallocs returns how many allocations the agent has made.
func (s *scaled) mallocs() (float64, error) { return s.metric(s.ctx, "go_memstats_mallocs_total") }

// mallocsDuring returns how many allocations the agent makes while a function
// runs, without those of being asked.
func (s *scaled) mallocsDuring(f func() error) (float64, error) {
	first, err := s.mallocs()
	if err != nil {
		return 0, err
	}
	before, err := s.mallocs()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := s.mallocs()
	return max(0, after-before-(before-first)), err
}

// cpuTime returns the CPU time of a process, in seconds.
func cpuTime(pid int) (float64, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: of all threads, to the nanosecond
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()).Seconds(), nil
}

func (s *scaled) delayRow(t *table, name, key string, took []time.Duration, allocations string) {
	slices.Sort(took)
	cells := []string{name}
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"worst", 1}} {
		v := took[min(int(p.share*float64(len(took))), len(took)-1)].Seconds() * 1e6
		s.report.value("scale/change/"+key+"/"+p.name, "µs", v)
		cells = append(cells, us(v))
	}
	t.row(append(cells, count(len(took)), allocations)...)
}

package kube

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/headgate/headgate/pkg/lb"
)

// bothWays runs a test against servers that can stream a list, and that cannot.
func bothWays(t *testing.T, test func(t *testing.T, a *api)) {
	t.Run("streams", func(t *testing.T) {
		a := mustServe(t)
		test(t, a)
		if a.count("list services") > 0 {
			t.Error("the Services were listed although they can be streamed")
		}
	})
	t.Run("lists", func(t *testing.T) {
		a := mustServe(t)
		a.listsOnly = true
		test(t, a)
		if a.count("list services") == 0 {
			t.Error("the Services were not listed")
		}
	})
}

func TestNothingIsPassedOnBeforeEverythingHasArrived(t *testing.T) {
	needed := []string{"services", "endpointslices", "nodes"}
	for i, path := range needed {
		t.Run(path, func(t *testing.T) {
			bothWays(t, func(t *testing.T, a *api) {
				a.put(service("web", 80), endpoints("web-1", "web", "10.0.0.1"), node("node-a", "zone-a"), node("node-b", "zone-b"))
				release := a.hold(path)
				s := mustNew(t, a)
				r := mustStart(t, a, s)
				for _, other := range slices.Delete(slices.Clone(needed), i, i+1) {
					eventually(t, other, func() bool { return a.count("watch "+other)+a.count("stream "+other) > 0 })
				}
				a.put(service("api", 90))
				if len(r.updates) > 0 || s.Health().Synced {
					t.Errorf("got %d updates, health %v", len(r.updates), s.Health())
				}
				release()
				r.take(<-r.updates)
				r.until("node node-a zone-a", "service api 90", "service web 80", "slice web-1 of web: 10.0.0.1")
				if got := r.world.updates; got > 2 || !s.Health().Synced {
					t.Errorf("it took %d updates, health %v", got, s.Health())
				}
			})
		})
	}
}

func TestAnEmptyClusterIsAnUpdateToo(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		r := mustStart(t, a, mustNew(t, a))
		r.until("node node-a ")
	})
}

func TestChangesArePassedOn(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		a.put(node("node-a", "zone-a"))
		r := mustStart(t, a, mustNew(t, a))
		r.until("node node-a zone-a")
		a.put(service("web", 80))
		r.until("node node-a zone-a", "service web 80")
		a.put(endpoints("web-1", "web", "10.0.0.1"))
		r.until("node node-a zone-a", "service web 80", "slice web-1 of web: 10.0.0.1")
		a.put(service("web", 81), endpoints("web-1", "web", "10.0.0.1", "10.0.0.2"), node("node-a", "zone-b"))
		r.until("node node-a zone-b", "service web 81", "slice web-1 of web: 10.0.0.1 10.0.0.2")
		a.remove(endpoints("web-1", ""), node("node-a", ""))
		r.until("node node-a ", "service web 81")
		a.remove(service("web", 0))
		r.until("node node-a ")
	})
}

func TestWhatMattersToNobodyIsNotPassedOn(t *testing.T) {
	a := mustServe(t)
	a.put(service("web", 80), endpoints("web-1", "web", "10.0.0.1"), node("node-a", ""))
	r := mustStart(t, a, mustNew(t, a))
	r.until("node node-a ", "service web 80", "slice web-1 of web: 10.0.0.1")
	es := endpoints("web-1", "web", "10.0.0.1")
	es.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-11-01T12:00:00Z"}
	a.put(es, service("web", 80, func(s *corev1.Service) { s.Annotations = map[string]string{"a": "b"} }), node("node-a", ""))
	a.put(service("web", 81), endpoints("web-1", "web", "10.0.0.2"))
	r.until("node node-a ", "service web 81", "slice web-1 of web: 10.0.0.2")
	if got := r.world.updates; got > 3 {
		t.Errorf("got %d updates: some say nothing", got)
	}
}

func TestABadObjectLeavesItsLastGoodVersion(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		a.put(service("web", 80), service("never", 80, clusterIP("x")), endpoints("web-1", "web", "10.0.0.1"), endpoints("api-1", "api", "127.0.0.1"))
		r := mustStart(t, a, mustNew(t, a))
		good := []string{"service web 80", "slice web-1 of web: 10.0.0.1"}
		never := []string{"frozen endpoints of api", "frozen never", "node node-a ", "problem EndpointSlice default/api-1 endpoints[0].addresses[0]"}
		r.until(append(append(never, "problem Service default/never spec.clusterIP"), good...)...)
		a.put(service("web", 0), endpoints("web-1", "web", "pod"))
		r.until(append(append(never, "problem EndpointSlice default/web-1 endpoints[0].addresses[0]",
			"problem Service default/never spec.clusterIP", "problem Service default/web spec.ports[0].port"), good...)...)
		a.put(service("never", 80), service("web", 81), endpoints("web-1", "web", "10.0.0.2"))
		a.remove(endpoints("api-1", ""))
		r.until("node node-a ", "service never 80", "service web 81", "slice web-1 of web: 10.0.0.2")
		a.put(service("web", 0))
		r.until("node node-a ", "problem Service default/web spec.ports[0].port", "service never 80", "service web 81", "slice web-1 of web: 10.0.0.2")
		a.remove(service("web", 0))
		r.until("node node-a ", "service never 80", "slice web-1 of web: 10.0.0.2")
	})
}

// taking counts the objects that a store has taken from a watch.
type taking struct {
	reflected
	taken *atomic.Int64
}

func (c taking) Add(obj any) error {
	defer c.taken.Add(1)
	return c.reflected.Add(obj)
}

func (c taking) Update(obj any) error { return c.Add(obj) }

func TestAStormIsOneUpdateForWhoIsBusy(t *testing.T) {
	const n = 5000
	a := mustServe(t)
	s := mustNew(t, a)
	var taken atomic.Int64
	for i := range s.stores {
		s.stores[i] = taking{s.stores[i].(reflected), &taken}
	}
	updates, proceed := make(chan lb.Update), make(chan struct{})
	mustRun(t, s, func(u lb.Update) {
		select {
		case updates <- u:
		case <-t.Context().Done():
		}
		select {
		case <-proceed:
		case <-t.Context().Done():
		}
	})
	<-updates // and whoever takes it stays busy
	for i := range n / 2 {
		name := fmt.Sprintf("web-%d", i%100)
		a.put(service(name, int32(1+i)), endpoints(name, name, "10.0.0.1", fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)))
	}
	eventually(t, "the end of the storm", func() bool { return taken.Load() == n })
	proceed <- struct{}{}
	if u := <-updates; len(u.Services) != 100 || len(u.Slices) != 100 {
		t.Errorf("got %d Services and %d slices in the one update", len(u.Services), len(u.Slices))
	}
	proceed <- struct{}{}
	if u, more := s.out.Next(); more {
		t.Errorf("there is more: %v", u)
	}
}

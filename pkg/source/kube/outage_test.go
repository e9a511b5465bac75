package kube

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

func TestARelistFindsWhatWasMissed(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		bad := service("bad", 80, clusterIP("10.96.0.256"))
		a.put(service("web", 80), service("api", 80), service("old", 80), bad, endpoints("web-1", "web", "10.0.0.1"), endpoints("old-1", "old", "10.0.0.2"))
		r := mustStart(t, a, mustNew(t, a))
		r.until("frozen bad", "node node-a ", "problem Service default/bad spec.clusterIP",
			"service api 80", "service old 80", "service web 80", "slice old-1 of old: 10.0.0.2", "slice web-1 of web: 10.0.0.1")
		releaseServices, releaseSlices := a.hold("services"), a.hold("endpointslices")
		a.hangUp()
		a.remove(service("old", 0), endpoints("old-1", ""), bad)
		a.put(service("web", 81))
		a.forget()
		before := r.world.updates
		releaseServices()
		r.until("node node-a ", "service api 80", "service web 81", "slice old-1 of old: 10.0.0.2", "slice web-1 of web: 10.0.0.1")
		want := map[lb.ServiceName]bool{{Namespace: "default", Name: "old"}: true, {Namespace: "default", Name: "web"}: true}
		got := map[lb.ServiceName]bool{}
		for n := range r.last.Services {
			got[n] = true
		}
		if diff := cmp.Diff(want, got); diff != "" || r.world.updates != before+1 || len(r.last.Slices) > 0 {
			t.Errorf("%d updates, the last with slices %v and %s", r.world.updates-before, r.last.Slices, diff)
		}
		releaseSlices()
		r.until("node node-a ", "service api 80", "service web 81", "slice web-1 of web: 10.0.0.1")
	})
}

func TestWithoutTheServerEverythingStays(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		a.put(service("web", 80), service("old", 80), node("node-a", "zone-a"))
		s := mustNew(t, a)
		r := mustStart(t, a, s)
		r.until("node node-a zone-a", "service old 80", "service web 80")
		eventually(t, "contact", func() bool { return s.Health().Cause == nil && time.Since(s.Health().LastContact) < time.Second })
		before := time.Now()
		eventually(t, "contact now, though nothing happens", func() bool { return s.Health().LastContact.After(before) })
		a.stop()
		eventually(t, "a cause", func() bool { return s.Health().Cause != nil })
		lost := s.Health().LastContact
		a.remove(service("old", 0))
		a.put(service("web", 81))
		time.Sleep(50 * time.Millisecond) // some attempts
		if h := s.Health(); len(r.updates) > 0 || !h.Synced || !h.LastContact.Equal(lost) || time.Since(lost) < 50*time.Millisecond {
			t.Errorf("got %d updates, health %v, contact was lost at %v", len(r.updates), h, lost)
		}
		a.start()
		r.until("node node-a zone-a", "service web 81")
		eventually(t, "contact", func() bool { return s.Health().Cause == nil && s.Health().LastContact.After(lost) })
	})
}

func TestAServerThatIsNotThereYetIsWaitedFor(t *testing.T) {
	a := mustServe(t)
	a.stop()
	a.put(service("web", 80))
	s := mustNew(t, a)
	r := mustStart(t, a, s)
	eventually(t, "a cause", func() bool { return s.Health().Cause != nil })
	if h := s.Health(); h.Synced || !h.LastContact.IsZero() {
		t.Errorf("health %v", h)
	}
	a.start()
	r.until("node node-a ", "service web 80")
}

func TestListsAreContactToo(t *testing.T) {
	a := mustServe(t)
	a.listsOnly, a.noWatch = true, true
	a.put(service("web", 80))
	s := mustNew(t, a)
	r := mustStart(t, a, s)
	r.until("node node-a ", "service web 80")
	eventually(t, "contact and a cause", func() bool { return !s.Health().LastContact.IsZero() && s.Health().Cause != nil })
	a.put(service("web", 81))
	r.until("node node-a ", "service web 81")
}

func TestAllComeBackWithTheFirst(t *testing.T) {
	a := mustServe(t)
	a.put(service("web", 80))
	a.stop()
	s := mustNew(t, a)
	s.backoff.Duration, s.backoff.Cap = time.Hour, 0
	r := mustStart(t, a, s)
	ask := func() error { return s.watchers[0].client.Get().Resource("nodes").Do(t.Context()).Error() }
	eventually(t, "all", func() bool {
		if ask() == nil { // and who does not wait yet has missed it
			a.stop()
			return false
		}
		time.Sleep(10 * time.Millisecond)
		a.start()
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		return len(r.updates) > 0
	})
	r.until("node node-a ", "service web 80")
}

func TestItEndsAtOnceWhileItWaitsForTheServer(t *testing.T) {
	bothWays := map[string]func(*api){
		"not there": (*api).stop,
		"refuses":   func(a *api) { a.with(func() { a.refusals["services"] = 429 }) },
	}
	for name, spoil := range bothWays {
		t.Run(name, func(t *testing.T) {
			a := mustServe(t)
			spoil(a)
			s := mustNew(t, a)
			s.backoff.Duration, s.backoff.Cap = time.Hour, 0
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.Run(ctx, func(lb.Update) {}) }()
			eventually(t, "a cause", func() bool { return s.Health().Cause != nil })
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it does not end")
			}
		})
	}
}

package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestTheAPIServerEndsAndComesBackUnderTraffic(t *testing.T) {
	s := mustStage(t)
	s.startAgent()
	at := s.service("web", nil)
	s.runningPod("web", 0)
	s.awaitBackends(at[0], webPods(0)...)
	end := s.traffic(at...)
	for round := range 2 {
		s.world.cluster.StopServer()
		time.Sleep(500 * time.Millisecond) // long enough for a try or two
		if err := s.world.cluster.StartServer(s.ctx); err != nil {
			t.Fatal(err)
		}
		s.runningPod("web", round+1)
		s.awaitBackends(at[0], webPods(0, 1, 2)[:round+2]...)
	}
	// A Service goes while no agent runs.
	at2 := s.service("gone", nil)
	s.awaitBackends(at2[0])
	s.world.cluster.StopServer()
	s.agent.Kill()
	if err := s.world.cluster.StartServer(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.do(http.MethodDelete, s.in(core, "services", "gone"), "", nil, nil)
	s.startAgent()
	s.eventually("the Service that went", func() error {
		if _, err := s.backends(at2[0]); err == nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	end()
}

// establishes is longer than a reflector wants a stream to last: one that was
// shorter, and brought nothing, makes it ask for everything.
const establishes = 1200 * time.Millisecond

func TestAStreamThatEndsGoesOnWhereItWas(t *testing.T) {
	s := mustStage(t)
	relay := s.newRelay()
	s.servers = relay.url
	s.startAgent()
	at := s.service("web", withoutSelector)[0]
	s.put(slice("web", "web", crowdAddr(0), 1))
	s.awaitBackends(at, crowded(1)...)
	if relay.lists.Load() == 0 {
		t.Error("the agent asked for nothing when it started, so this shows nothing")
	}
	end := s.traffic(at)
	for n := 2; n <= 5; n++ {
		time.Sleep(establishes)
		lists := relay.lists.Load()
		relay.cut()
		s.put(slice("web", "web", crowdAddr(0), n))
		s.awaitBackends(at, crowded(n)...)
		if again := relay.lists.Load() - lists; again != 0 {
			t.Errorf("the agent asked for everything %d times after its streams had ended, it knew where it was", again)
		}
	}
	end()
}

func TestARevisionThatHasExpiredIsNoLoss(t *testing.T) {
	s := mustStage(t)
	relay := s.newRelay()
	s.servers = relay.url
	s.startAgent()
	at, gone := s.service("web", withoutSelector)[0], s.service("gone", withoutSelector)[0]
	s.put(slice("web", "web", crowdAddr(0), 2))
	s.awaitBackends(at, crowded(2)...)
	s.awaitBackends(gone)
	end := s.traffic(at)
	time.Sleep(establishes)
	relay.refuse(true)
	// Changes come that the agent does not hear of, and what they were is
	// forgotten: etcd by compaction, the API server since it is another one.
	for n := 3; n <= 6; n++ {
		s.put(slice("web", "web", crowdAddr(0), n))
	}
	s.do(http.MethodDelete, s.in(core, "services", "gone"), "", nil, nil)
	if err := s.world.cluster.Compact(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.world.cluster.StopServer()
	if err := s.world.cluster.StartServer(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.put(slice("web", "web", crowdAddr(0), 7))
	relay.refuse(false)
	s.awaitBackends(at, crowded(7)...)
	s.eventually("the Service that went", func() error {
		if _, err := s.backends(gone); err == nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	if relay.expired.Load() == 0 {
		t.Error("the API server never said that a revision had expired, so this shows nothing")
	}
	end()
	s.eventually("the agent is healthy", s.healthy)
}

func TestClocksThatDisagreeChangeNothingButOneMeasurement(t *testing.T) {
	const metric = `kubeproxy_network_programming_duration_seconds_`
	s := mustStage(t)
	s.startAgent()
	at := s.service("web", withoutSelector)[0]
	s.awaitBackends(at)
	n := 0
	for _, skew := range []time.Duration{-10 * 365 * 24 * time.Hour, -time.Hour, 0, time.Hour, 10 * 365 * 24 * time.Hour} {
		n++
		s.put(triggered(slice("web", "web", crowdAddr(0), n), time.Now().Add(skew)))
		s.awaitBackends(at, crowded(n)...)
	}
	es := slice("web", "web", crowdAddr(0), n+1)
	es.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "yesterday"}
	s.put(es)
	s.awaitBackends(at, crowded(n+1)...)
	s.wantAnswers(at, "crowd")
	m, err := s.metrics()
	if err != nil {
		t.Fatal(err)
	}
	// Not measured: what was before the agent began, and what is no time.
	if got := m[metric+`count{ip_family="IPv4"}`]; got != "3" {
		t.Errorf("%s measurements of programming, want 3", got)
	}
	var sum float64
	if _, err := fmt.Sscan(m[metric+`sum{ip_family="IPv4"}`], &sum); err != nil || sum < 0 || sum > 10 {
		t.Errorf("they add up to %v seconds (%v), want something between 0 and 10", sum, err)
	}
}

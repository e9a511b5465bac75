package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

func TestNoRequestFailsWhileEveryPodIsReplaced(t *testing.T) {
	s := mustStage(t)
	s.startAgent()
	at := s.service("web", nil)
	running := map[int]*serve.Server{}
	for i := range 3 {
		_, running[i] = s.runningPod("web", i)
	}
	s.awaitBackends(at[0], webPods(0, 1, 2)...)
	s.awaitBackends(at[1], webPods6(0, 1, 2)...)
	end := s.traffic(at...)
	// One more, one less, as a Deployment does it with maxUnavailable 0.
	for round := range 6 {
		old, renewed := round%pods, (round+3)%pods
		_, running[renewed] = s.runningPod("web", renewed)
		s.awaitBackends(at[0], webPods(old, (round+1)%pods, (round+2)%pods, renewed)...)
		name := fmt.Sprintf("web-%d", old)
		s.terminate(name)
		left := []int{(round + 1) % pods, (round + 2) % pods, renewed}
		s.awaitBackends(at[0], webPods(left...)...)
		s.awaitBackends(at[1], webPods6(left...)...)
		// The server goes on for a moment, as one with a preStop hook does: it
		// may have a connection in its queue that came before.
		time.Sleep(100 * time.Millisecond)
		running[old].Close()
		s.remove(name)
	}
	if answers := end(); len(answers) != pods {
		t.Errorf("answers %v, want some of each of %d pods", answers, pods)
	}
}

// webPods are the backends of the pods of some namespaces, over IPv4.
func webPods(which ...int) []string { return podsOf(0, which) }

// webPods6 are the same over IPv6.
func webPods6(which ...int) []string { return podsOf(1, which) }

func podsOf(family int, which []int) (out []string) {
	for _, i := range which {
		out = append(out, at8080(podAddrs(i)[family])...)
	}
	return out
}

func TestAServiceThatIsScaledToZeroRefusesAndComesBack(t *testing.T) {
	s := mustStage(t)
	s.startAgent()
	at := s.service("web", nil)
	for range 2 {
		var servers []*serve.Server
		for i := range 2 {
			_, server := s.runningPod("web", i)
			servers = append(servers, server)
		}
		s.awaitBackends(at[0], webPods(0, 1)...)
		s.awaitBackends(at[1], webPods6(0, 1)...)
		s.wantAnswers(at[0], "web-0", "web-1")
		for i := range 2 {
			s.remove(fmt.Sprintf("web-%d", i))
		}
		for _, a := range at {
			s.awaitBackends(a)
			s.refused(a)
		}
		for _, server := range servers {
			server.Close() // their addresses are needed again
		}
	}
}

// refused fails the test unless connections to an address are refused, at once.
func (s *stage) refused(at netip.AddrPort) {
	s.tb.Helper()
	began := time.Now()
	run := s.run(at)
	if run.Due == 0 || run.Errors[result.Refused] != run.Due {
		s.tb.Errorf("of %d connections to %s: %s; want all of them refused", run.Due, at, run.ErrorText())
	}
	if took := time.Since(began); took > 3*time.Second {
		s.tb.Errorf("refusing took %s", took)
	}
}

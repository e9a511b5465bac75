package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// step is a change of the cluster and what is to come of it.
type step struct {
	name string
	do   func()
	want map[netip.AddrPort][]string // nil: the address is no frontend
}

func TestTheAgentIsKilledAtEveryStep(t *testing.T) {
	for _, when := range []struct {
		name  string
		delay time.Duration // from the change to the kill
	}{{"before it hears of the change", -1}, {"at once", 0}, {"a moment later", 3 * time.Millisecond}, {"when it has begun", 20 * time.Millisecond}} {
		t.Run(when.name, func(t *testing.T) {
			s := mustStage(t)
			s.startAgent()
			// What goes on throughout, and must never notice.
			steady := s.service("steady", withoutSelector)[0]
			s.put(slice("steady", "steady", crowdAddr(1000), 3))
			s.eventually("the Service that stays", func() error { _, err := s.backends(steady); return err })
			s.awaitBackends(steady, crowded(1003)[1000:]...)
			end := s.traffic(steady)
			for _, step := range s.steps() {
				if when.delay < 0 {
					s.agent.Kill()
				}
				step.do()
				if when.delay >= 0 {
					time.Sleep(when.delay)
					s.agent.Kill()
				}
				s.startAgent()
				s.check(step)
			}
			end()
		})
	}
}

// steps is the life of a Service. Addresses are known once it is made.
func (s *stage) steps() []step {
	at := netip.MustParseAddrPort("10.96.7.1:80")
	moved := netip.MustParseAddrPort("10.96.7.1:81")
	slicePath := s.in(discovery, "endpointslices", "life-2")
	servicePath := s.in(core, "services", "life")
	return []step{
		{"a Service comes", func() {
			s.service("life", func(svc *corev1.Service) { withoutSelector(svc); svc.Spec.ClusterIP = "10.96.7.1" })
		}, map[netip.AddrPort][]string{at: {}}},
		{"endpoints come", func() { s.put(slice("life", "life-1", crowdAddr(0), 100)) }, map[netip.AddrPort][]string{at: crowded(100)}},
		{"another slice comes", func() { s.put(slice("life", "life-2", crowdAddr(100), 50)) }, map[netip.AddrPort][]string{at: crowded(150)}},
		{"endpoints go", func() { s.put(slice("life", "life-1", crowdAddr(0), 90)) },
			map[netip.AddrPort][]string{at: append(append([]string{}, crowded(90)...), crowded(150)[100:]...)}},
		{"a slice goes", func() { s.do(http.MethodDelete, slicePath, "", nil, nil) }, map[netip.AddrPort][]string{at: crowded(90)}},
		{"the port is another", func() {
			s.do(http.MethodPatch, servicePath, "application/json-patch+json",
				[]map[string]any{{"op": "replace", "path": "/spec/ports/0/port", "value": 81}}, nil)
		}, map[netip.AddrPort][]string{at: nil, moved: crowded(90)}},
		{"the Service goes", func() { s.do(http.MethodDelete, servicePath, "", nil, nil) }, map[netip.AddrPort][]string{at: nil, moved: nil}},
	}
}

// check waits for what is to come of a step.
func (s *stage) check(step step) {
	s.tb.Helper()
	for at, want := range step.want {
		if want != nil {
			s.awaitBackends(at, want...)
			continue
		}
		s.eventually(step.name, func() error {
			if _, err := s.backends(at); err == nil {
				return fmt.Errorf("%s is still a frontend", at)
			}
			return nil
		})
	}
}

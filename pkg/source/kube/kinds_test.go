package kube

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

func TestAServiceThatIsHandedToAnotherProxyIsGone(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		foreign := func(s *corev1.Service) { s.Labels = map[string]string{convert.LabelServiceProxyName: "other"} }
		a.put(service("web", 80), service("headless", 80, clusterIP("None")), service("foreign", 80, foreign))
		r := mustStart(t, a, mustNew(t, a))
		r.until("node node-a ", "service web 80")
		a.put(service("web", 80, foreign))
		r.until("node node-a ")
		a.put(service("web", 80))
		r.until("node node-a ", "service web 80")
		a.put(service("web", 80, func(s *corev1.Service) { s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeExternalName, "" }))
		r.until("node node-a ")
	})
}

func TestAHeadlessSliceIsGone(t *testing.T) {
	a := mustServe(t)
	a.put(endpoints("web-1", "web", "10.0.0.1"))
	r := mustStart(t, a, mustNew(t, a))
	r.until("node node-a ", "slice web-1 of web: 10.0.0.1")
	es := endpoints("web-1", "web", "10.0.0.1")
	es.Labels[corev1.IsHeadlessService] = ""
	a.put(es)
	r.until("node node-a ")
}

func TestExternalIPsAreTheOperatorsAffair(t *testing.T) {
	a := mustServe(t)
	external := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.1", "8.8.8.8"} }
	a.put(service("web", 80, external))
	r := mustStart(t, a, mustNew(t, a, func(c *Config) {
		c.Convert.ExternalIPs.Allowed = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	}))
	r.until("node node-a ", "problem Service default/web spec.externalIPs", "service web 80")
	if got := fmt.Sprint(r.services[lb.ServiceName{Namespace: "default", Name: "web"}].ExternalIPs); got != "[203.0.113.1]" {
		t.Errorf("got %s", got)
	}
}

func TestANodeThatMayNotBeReadIsSaid(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		a.with(func() { a.refusals["nodes"] = 403 })
		a.put(node("node-a", "zone-a"))
		r := mustStart(t, a, mustNew(t, a))
		r.until("node node-a ", "problem Node ")
		if got, want := r.last.Problems[0].Error(), "Node: may not be read: no, said the test; allow the agent's ServiceAccount to list and watch it"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		a.with(func() { delete(a.refusals, "nodes") })
		r.until("node node-a zone-a")
	})
}

func TestServiceCIDRsArePassedOnTogether(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		a.put(cidr("kubernetes", "10.96.0.0/16", "fd00:96::/108"), cidr("more", "10.64.0.0/16"))
		r := mustStart(t, a, mustNew(t, a))
		until := func(want string) {
			t.Helper()
			for fmt.Sprint(r.last.ServiceCIDRs) != want {
				select {
				case u := <-r.updates:
					r.take(u)
				case <-time.After(20 * time.Second):
					t.Fatalf("got %v, want %s", r.last.ServiceCIDRs, want)
				}
			}
		}
		until("[10.64.0.0/16 10.96.0.0/16 fd00:96::/108]")
		a.put(cidr("less", "10.64.0.0/16", "10.32.0.0/16"))
		until("[10.32.0.0/16 10.64.0.0/16 10.96.0.0/16 fd00:96::/108]")
		a.remove(cidr("kubernetes"))
		until("[10.32.0.0/16 10.64.0.0/16]")
		a.remove(cidr("less"), cidr("more"))
		until("[]")
		if r.last.ServiceCIDRs == nil {
			t.Error("none is told as unknown")
		}
		a.put(service("web", 80))
		r.until("node node-a ", "service web 80")
		if r.last.ServiceCIDRs != nil {
			t.Errorf("got %v without a change", r.last.ServiceCIDRs)
		}
	})
}

func TestAServerWithoutServiceCIDRsIsNotPesteredForThem(t *testing.T) {
	a := mustServe(t)
	a.with(func() { a.refusals["servicecidrs"] = 404 })
	r := mustStart(t, a, mustNew(t, a))
	eventually(t, "the question", func() bool { return a.count("list servicecidrs") == 2 })
	a.put(service("web", 80))
	r.until("node node-a ", "service web 80")
	time.Sleep(50 * time.Millisecond) // many times the backoff
	// Once for each version.
	if got := a.count("list servicecidrs"); got != 2 || r.last.ServiceCIDRs != nil {
		t.Errorf("asked %d times, got %v", got, r.last.ServiceCIDRs)
	}
}

func TestRequestsAreAsKubeProxysAre(t *testing.T) {
	a := mustServe(t)
	r := mustStart(t, a, mustNew(t, a))
	r.until("node node-a ")
	eventually(t, "all four", func() bool { return a.count("stream servicecidrs") > 0 })
	a.mu.Lock()
	defer a.mu.Unlock()
	want := map[string]string{
		"services":       "!service.kubernetes.io/service-proxy-name spec.clusterIP!=None",
		"endpointslices": "!service.kubernetes.io/headless ",
		"nodes":          " metadata.name=node-a",
		"servicecidrs":   " ",
	}
	if diff := cmp.Diff(want, a.selectors); diff != "" {
		t.Error(diff)
	}
	if a.agent != "headgate/1.2.3" || a.accept != "application/vnd.kubernetes.protobuf;stream=watch,application/json;stream=watch" && a.accept != "application/vnd.kubernetes.protobuf,application/json" {
		t.Errorf("agent %s, accept %s", a.agent, a.accept)
	}
}

func TestASliceOfAnotherFamilyIsKeptApart(t *testing.T) {
	a := mustServe(t)
	six := endpoints("web-2", "web", "fd00::1")
	six.AddressType = discoveryv1.AddressTypeIPv6
	a.put(endpoints("web-1", "web", "10.0.0.1"), six)
	r := mustStart(t, a, mustNew(t, a))
	r.until("node node-a ", "slice web-1 of web: 10.0.0.1", "slice web-2 of web: fd00::1")
}

package kube

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestAddressesOfAllNodesAreToldWhereProbesAreAllowed(t *testing.T) {
	for _, probes := range []bool{false, true} {
		a := mustServe(t)
		at := func(name, addr string) *corev1.Node {
			n := node(name, "zone-a")
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: addr}}
			return n
		}
		a.put(at("node-a", "192.0.2.1"), at("node-b", "192.0.2.2"))
		got := make(chan lb.Update, 100)
		mustRun(t, mustNew(t, a, func(c *Config) { c.Convert.Probes = probes }), func(u lb.Update) { got <- u })
		next := func() lb.Update {
			select {
			case u := <-got:
				return u
			case <-time.After(20 * time.Second):
				t.Fatal("nothing is told")
				return lb.Update{}
			}
		}
		u := next()
		want := map[string][]netip.Addr{"node-a": {netip.MustParseAddr("192.0.2.1")}, "node-b": {netip.MustParseAddr("192.0.2.2")}}
		if !probes {
			want = nil
		}
		if diff := cmp.Diff(want, u.NodeAddresses, cmpopts.EquateComparable(netip.Addr{})); diff != "" || u.Node == nil || u.Node.Name != "node-a" {
			t.Errorf("probes %t: node %v, addresses (-want +got):\n%s", probes, u.Node, diff)
		}
		if !probes {
			continue
		}
		a.remove(at("node-b", ""))
		u = next()
		if now, told := u.NodeAddresses["node-b"]; !told || now != nil || u.Node != nil {
			t.Errorf("another node is gone: %v, told: %t, this one: %v", now, told, u.Node)
		}
	}
}

func TestPodRangesOfAllNodesThatAreReadAreTold(t *testing.T) {
	for _, all := range []bool{false, true} {
		a := mustServe(t)
		with := func(name, ranges string) *corev1.Node {
			n := node(name, "zone-a")
			n.Spec.PodCIDRs = []string{ranges}
			return n
		}
		a.put(with("node-a", "10.244.1.0/24"), with("node-b", "10.244.2.0/24"))
		got := make(chan lb.Update, 100)
		mustRun(t, mustNew(t, a, func(c *Config) { c.Convert.DSR = all }), func(u lb.Update) { got <- u })
		next := func(want map[string][]netip.Prefix) (u lb.Update) {
			select {
			case u = <-got:
			case <-time.After(20 * time.Second):
				t.Fatal("nothing is told")
			}
			if diff := cmp.Diff(want, u.PodRanges, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("all %t: (-want +got):\n%s", all, diff)
			}
			return u
		}
		ranges := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
		if !all {
			next(map[string][]netip.Prefix{"node-a": ranges("10.244.1.0/24")})
			a.put(with("node-a", "10.244.4.0/24"))
			next(map[string][]netip.Prefix{"node-a": ranges("10.244.4.0/24")})
			continue
		}
		next(map[string][]netip.Prefix{"node-a": ranges("10.244.1.0/24"), "node-b": ranges("10.244.2.0/24")})
		a.put(with("node-b", "10.244.3.0"))
		if u := next(map[string][]netip.Prefix{"node-b": nil}); len(u.Problems) != 1 || u.Problems[0].Object != "Node node-b" || u.Nodes["node-b"] == nil {
			t.Errorf("of a bad range: Node %v, problems %v", u.Nodes["node-b"], u.Problems)
		}
		a.put(with("node-b", "10.244.3.0/24"))
		next(map[string][]netip.Prefix{"node-b": ranges("10.244.3.0/24")})
		a.remove(with("node-b", ""))
		next(map[string][]netip.Prefix{"node-b": nil})
	}
}

func TestPodsOfTheNodeAreToldWhereTheyAreWanted(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		pod := func(name, node, ip string) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{PodIP: ip}}
		}
		a.put(pod("here", "node-a", "10.244.0.1"), pod("there", "node-b", "10.244.1.1"))
		known := map[lb.PodName]string{}
		got := make(chan lb.Update, 100)
		mustRun(t, mustNew(t, a, func(c *Config) { c.Pods = true }), func(u lb.Update) { got <- u })
		until := func(want map[lb.PodName]string) {
			t.Helper()
			for !cmp.Equal(known, want) {
				select {
				case u := <-got:
					for name, p := range u.Pods {
						if delete(known, name); p != nil {
							known[name] = fmt.Sprint(p.Addrs)
						}
					}
				case <-time.After(20 * time.Second):
					t.Fatalf("got %v, want %v", known, want)
				}
			}
		}
		here, late := lb.PodName{Namespace: "default", Name: "here"}, lb.PodName{Namespace: "default", Name: "late"}
		until(map[lb.PodName]string{here: "[10.244.0.1]"})
		a.put(pod("late", "node-a", "10.244.0.2"))
		until(map[lb.PodName]string{here: "[10.244.0.1]", late: "[10.244.0.2]"})
		a.remove(pod("here", "node-a", ""))
		until(map[lb.PodName]string{late: "[10.244.0.2]"})
		if n := a.count("list pods") + a.count("stream pods"); n > 2 { // one of which may be refused
			t.Errorf("all Pods are asked for %d times: changes are not understood", n)
		}
	})
}

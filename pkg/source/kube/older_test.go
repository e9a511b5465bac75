package kube

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// noticed collects what a source tells.
type noticed struct {
	mu   sync.Mutex
	said []string
}

func (n *noticed) to(c *Config) {
	c.Notice = func(text string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.said = append(n.said, text)
	}
}

func (n *noticed) want(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.said, want) {
		t.Errorf("told %q, want %q", n.said, want)
	}
}

func TestServiceCIDRsAreTakenAsTheServerHasThem(t *testing.T) {
	bothWays(t, func(t *testing.T, a *api) {
		a.with(func() { a.beta = true; a.refusals["networking.k8s.io/v1/servicecidrs"] = 404 })
		a.put(cidr("kubernetes", "10.96.0.0/16"))
		var n noticed
		r := mustStart(t, a, mustNew(t, a, n.to))
		until := func(want string) {
			t.Helper()
			eventually(t, want, func() bool {
				select {
				case u := <-r.updates:
					r.take(u)
				default:
				}
				return fmt.Sprint(r.last.ServiceCIDRs) == want
			})
		}
		until("[10.96.0.0/16]")
		a.put(cidr("more", "10.64.0.0/16"))
		until("[10.64.0.0/16 10.96.0.0/16]")
		n.want(t, "the API server has servicecidrs as networking.k8s.io/v1beta1")
		// The server is upgraded.
		a.with(func() {
			a.beta, a.refusals = false, map[string]int{"networking.k8s.io/v1beta1/servicecidrs": 404}
		})
		a.forget()
		a.hangUp()
		a.put(cidr("new", "10.32.0.0/16"))
		until("[10.32.0.0/16 10.64.0.0/16 10.96.0.0/16]")
		n.want(t, "the API server has servicecidrs as networking.k8s.io/v1beta1", "the API server has servicecidrs as networking.k8s.io/v1")
	})
}

func TestAServerWithoutServiceCIDRsIsSaidOnce(t *testing.T) {
	a := mustServe(t)
	a.with(func() { a.refusals["servicecidrs"] = 404 })
	var n noticed
	s := mustNew(t, a, n.to)
	for _, w := range s.watchers {
		w.pause = 1
	}
	r := mustStart(t, a, s)
	r.until("node node-a ")
	eventually(t, "the question, again and again", func() bool { return a.count("list servicecidrs") > 6 })
	n.want(t, "the API server has no servicecidrs (networking.k8s.io): going on without")
}

func TestAServerThatCannotSelectServicesGivesAll(t *testing.T) {
	a := mustServe(t)
	a.with(func() { a.noFields = true })
	a.put(service("web", 80), service("headless", 81, clusterIP(corev1.ClusterIPNone)))
	var n noticed
	r := mustStart(t, a, mustNew(t, a, n.to))
	r.until("node node-a ", "service web 80")
	a.put(service("more", 82))
	r.until("node node-a ", "service more 82", "service web 80")
	n.want(t, "the API server cannot select services by spec.clusterIP!=None: all are watched")
}

package kube

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headgate/headgate/pkg/lb"
)

func service(name string, port int32, alter ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10", Ports: []corev1.ServicePort{{Port: port}}}}
	for _, a := range alter {
		a(svc)
	}
	return svc
}

func clusterIP(ip string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ClusterIP = ip }
}

func endpoints(name, service string, addrs ...string) *discoveryv1.EndpointSlice {
	es := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080))}}}
	for _, a := range addrs {
		es.Endpoints = append(es.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: new("node-a")})
	}
	return es
}

func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
}

func cidr(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

// mustKubeconfig writes a kubeconfig for a server.
func mustKubeconfig(tb testing.TB, url, extra string) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q%s}}],"users":[{"name":"u","user":{"token":"secret"}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, url, extra)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// mustNew returns a source that asks a server, and is impatient.
func mustNew(tb testing.TB, a *api, alter ...func(*Config)) *Source {
	tb.Helper()
	cfg := Config{Node: "node-a", Kubeconfig: mustKubeconfig(tb, "http://"+a.addr, ""), QPS: -1, Version: "1.2.3"}
	for _, f := range alter {
		f(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	s.backoff.Duration, s.backoff.Cap = 5*time.Millisecond, 20*time.Millisecond
	return s
}

// world is what somebody knows who has taken all updates.
type world struct {
	services map[lb.ServiceName]*lb.Service
	slices   map[lb.SliceName]*lb.Slice
	node     lb.Node
	last     lb.Update
	updates  int
}

// running is a source at work.
type running struct {
	world
	tb      testing.TB
	api     *api
	source  *Source
	updates chan lb.Update
}

// mustStart starts a source, and stops it after the test.
func mustStart(tb testing.TB, a *api, s *Source) *running {
	tb.Helper()
	r := &running{tb: tb, api: a, source: s, updates: make(chan lb.Update, 10000),
		world: world{services: map[lb.ServiceName]*lb.Service{}, slices: map[lb.SliceName]*lb.Slice{}}}
	mustRun(tb, s, func(u lb.Update) { r.updates <- u })
	return r
}

// mustRun runs a source until the test ends.
func mustRun(tb testing.TB, s *Source, update func(lb.Update)) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, update) }()
	tb.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				tb.Errorf("run: %v", err)
			}
		case <-time.After(20 * time.Second):
			tb.Error("it does not end")
		}
	})
}

// until takes updates until the world is so.
func (r *running) until(want ...string) {
	r.tb.Helper()
	late := time.After(20 * time.Second)
	for r.String() != lines(want...) {
		select {
		case u := <-r.updates:
			r.take(u)
		case <-late:
			r.tb.Fatalf("never came:\n%s\nhave:\n%s", lines(want...), r)
		}
	}
}

func (w *world) take(u lb.Update) {
	w.updates++
	w.last = u
	for n, svc := range u.Services {
		if w.services[n] = svc; svc == nil {
			delete(w.services, n)
		}
	}
	for n, slice := range u.Slices {
		if w.slices[n] = slice; slice == nil {
			delete(w.slices, n)
		}
	}
	if u.Node != nil {
		w.node = *u.Node
	}
}

// String prints the world, one object a line.
func (w *world) String() string {
	if w.updates == 0 {
		return "nothing"
	}
	out := []string{"node " + w.node.Name + " " + w.node.Zone}
	for _, n := range slices.SortedFunc(maps.Keys(w.services), lb.ServiceName.Compare) {
		out = append(out, fmt.Sprintf("service %s %d", n.Name, w.services[n].Ports[0].Port))
	}
	for n, s := range w.slices {
		var addrs []string
		for _, e := range s.Endpoints {
			addrs = append(addrs, e.Addr.String())
		}
		out = append(out, fmt.Sprintf("slice %s of %s: %s", n.Name, s.Service, strings.Join(addrs, " ")))
	}
	for _, p := range w.last.Problems {
		out = append(out, "problem "+p.Object+" "+p.Field)
	}
	for n := range w.last.Frozen {
		out = append(out, "frozen "+n.Name)
	}
	for n := range w.last.FrozenEndpoints {
		out = append(out, "frozen endpoints of "+n.Name)
	}
	slices.Sort(out)
	return lines(out...)
}

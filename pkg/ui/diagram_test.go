package ui

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// What backends count is told by client, as far as it is seen whose it is.
func TestTheDiagramAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{services: some(1)}
		f.services[0].PerSecond = of(20)
		var next uint64
		begin := func(client, backend string, n int) {
			for range n {
				next++
				f.flows = append(f.flows, Flow{ID: next, Open: true, Client: netip.MustParseAddr(client), Backend: backend})
			}
		}
		const one, two = "10.244.0.1:8080/TCP", "10.244.0.2:8080/TCP"
		begin("10.0.0.1", one, 1)
		h := New(f)
		look := func() (v view) {
			get(t, h, "/api/service?name=shop/web-0:http/TCP", &v)
			time.Sleep(time.Second)
			return v
		}
		wantLinks(t, look(), "10.0.0.1>1 open 1 rate 0", "?>1 open 0 rate 10", "?>2 open 0 rate 10")
		begin("10.0.0.2", one, 6)
		begin("10.0.0.3", one, 3)
		begin("10.0.0.2", two, 2)
		begin("10.0.0.9", "10.244.0.99:8080/TCP", 1)
		f.flows[1].Open = false // it is closing
		v := look()             // of one nearly all are seen, of two few
		wantLinks(t, v, "10.0.0.2>1 open 5 rate 6.7", "10.0.0.3>1 open 3 rate 3.3", "10.0.0.1>1 open 1 rate 0",
			"10.0.0.2>2 open 2 rate 2", "?>2 open 0 rate 8", "10.0.0.9>3 open 1 rate 0")
		if v.Backends[2].State != "gone" {
			t.Errorf("a backend that has left is %+v", v.Backends[2])
		}
		f.services[0].PerSecond = of(8) // the backends have other Service ports
		f.flows = nil
		if v = look(); !v.Estimated {
			t.Error("it does not say that it estimates")
		}
		wantLinks(t, v, "10.0.0.2>1 open 0 rate 2.7", "10.0.0.3>1 open 0 rate 1.3", "10.0.0.2>2 open 0 rate 0.89", "?>2 open 0 rate 3.1")
		for i := range 20 {
			begin(fmt.Sprintf("10.1.0.%d", i), one, 1)
		}
		if v = look(); len(v.Clients) != clientsShown+1 || v.Clients[clientsShown].More != 22-clientsShown {
			t.Errorf("clients %+v", v.Clients)
		}
	})
}

// Of a backend that comes back clients are seen from the first look on, as those of any other.
func TestABackendThatWasIdleHasItsClientsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{services: some(1)}
		f.services[0].Avoided, f.services[0].PerSecond = 2, of(0)
		h := New(f)
		var v view
		for range 10 {
			get(t, h, "/api/service?name=shop/web-0:http/TCP", &v)
			time.Sleep(time.Second)
		}
		f.services[0].Avoided, f.services[0].PerSecond = 0, of(20)
		for i := range 20 {
			f.flows = append(f.flows, Flow{ID: uint64(i), Open: true, Client: netip.MustParseAddr("10.0.0.1"), Backend: fmt.Sprintf("10.244.0.%d:8080/TCP", 1+i%2)})
		}
		v = view{}
		get(t, h, "/api/service?name=shop/web-0:http/TCP", &v)
		wantLinks(t, v, "10.0.0.1>1 open 10 rate 10", "10.0.0.1>2 open 10 rate 10")
	})
}

// wantLinks compares links by client and place of the backend, in any order.
func wantLinks(t *testing.T, v view, want ...string) {
	t.Helper()
	var got []string
	for _, l := range v.Links {
		client := v.Clients[l.Client].Address
		if client == "" {
			client = "?"
		}
		got = append(got, fmt.Sprintf("%s>%d open %d rate %.2g", client, l.Backend+1, l.Open, l.PerSecond))
	}
	less := func(a, b string) bool { return a < b }
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(less)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

package netns_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
)

// Maps that start with room for next to nothing.
func TestMapsGrowUnderTraffic(t *testing.T) {
	const services, batch = 2000, 100
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			b := mustServe(t, k.pick("10.244.0.1:8080/TCP", "[fd00:244::1]:8080/TCP"))
			n := mustOpen(t, config(t))
			vip := k.pick("10.96.0.1:80", "[fd00:96::1]:80")
			inbox, ready := mustReconcile(t, n)
			inbox.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
			inbox.Update(someService("web", at(vip), b.at))
			<-ready
			open, _ := dialTCP(t, k, at(vip))
			l := mustLoad(t, k, at(vip), b)
			for i := 0; i < services; i += batch {
				l.await(10)
				inbox.Update(manyServices(i, i+batch))
			}
			eventually(t, "all Services are in force", func() bool { return n.frontendsPinned() == services+1 })
			l.await(100)
			l.wantNoFailure()
			open.wantPeer(at(vip), "after the maps have grown")
			if s := n.status(); s.Counters["connect"] < 2 {
				t.Errorf("%d connects are counted: the counters are lost", s.Counters["connect"])
			}
			open.close()
			if got := n.socketEntries(); got != 0 {
				t.Errorf("all sockets are closed, and %d entries in use", got)
			}
		})
	}
}

// mustReconcile runs the loop until the test ends.
func mustReconcile(tb testing.TB, n *node) (*reconciler.Inbox, <-chan struct{}) {
	tb.Helper()
	inbox := reconciler.NewInbox(nil)
	r, err := reconciler.New(zap.NewNop(), inbox, n.dp, plan.Sizes{})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		if err := r.Run(ctx); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(func() { cancel(); loop.Wait() })
	return inbox, r.Ready()
}

// someService is a Service of TCP at an address, with an endpoint.
func someService(name string, vip netip.AddrPort, endpoint lb.AddrPort) lb.Update {
	u := lb.Update{Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	addService(u, name, vip, endpoint)
	return u
}

func addService(u lb.Update, name string, vip netip.AddrPort, endpoint lb.AddrPort) {
	s := &lb.Service{
		ServiceName: lb.ServiceName{Namespace: "default", Name: name},
		ClusterIPs:  []netip.Addr{vip.Addr()},
		Ports:       []lb.ServicePort{{Name: "main", Protocol: lb.TCP, Port: vip.Port()}},
	}
	u.Services[s.ServiceName] = s
	slice := &lb.Slice{
		SliceName: lb.SliceName{Namespace: "default", Name: name}, Service: name,
		Ports:     []lb.SlicePort{{Name: "main", Protocol: lb.TCP, Port: endpoint.Port}},
		Endpoints: []lb.Endpoint{{Addr: endpoint.Addr, Ready: true, Serving: true}},
	}
	u.Slices[slice.SliceName] = slice
}

// manyServices are Services numbered from first to before end, with an
// endpoint each that nobody else has.
func manyServices(first, end int) lb.Update {
	u := lb.Update{Services: map[lb.ServiceName]*lb.Service{}, Slices: map[lb.SliceName]*lb.Slice{}}
	for i := first; i < end; i++ {
		vip := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}), 80)
		endpoint := netip.AddrFrom4([4]byte{10, 245, byte(i >> 8), byte(i)})
		addService(u, fmt.Sprint("s", i), vip, lb.AddrPort{Addr: endpoint, Port: 8080, Protocol: lb.TCP})
	}
	return u
}

// frontendsPinned counts what is pinned, without the datapath, which belongs to
// the loop. It is -1 while the maps are being replaced.
func (n *node) frontendsPinned() int {
	i, err := datapath.Inspect(n.cfg.Root)
	if err != nil {
		return -1
	}
	defer i.Close()
	c, err := i.Content()
	if err != nil {
		return -1
	}
	return len(c.Frontends)
}

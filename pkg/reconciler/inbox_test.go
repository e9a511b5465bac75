package reconciler

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

func TestWhatCameBeforeTheReconcilerWasMadeIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := 0
		inbox := NewInbox(func(time.Time) { queued++ })
		inbox.Update(web(1, 1, 2))
		inbox.Update(web(2, 1))
		inbox.Update(without(2))
		inbox.SetDevices([]plan.Device{{Index: 2, Name: "eth0"}})
		inbox.SetDevices([]plan.Device{{Index: 2, Name: "eth0"}, {Index: 3, Name: "eth1"}})
		inbox.SetNodeAddresses(map[netip.Addr]plan.AddressKind{netip.MustParseAddr("192.0.2.1"): plan.NodeAddress})
		want(t, "updates that were queued", 3, queued)

		dp := &fake{began: time.Now()}
		r, err := New(zap.NewNop(), inbox, dp, plan.Sizes{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		want(t, "calls", []string{
			"0s reserve",
			"0s put address 192.0.2.1 node",
			"0s put backend 1 10.244.1.1:8080/TCP",
			"0s put backend 2 10.244.1.2:8080/TCP",
			"0s put service 1 default/web-1/TCP",
			"0s put frontend 10.96.0.1:80/TCP kind ClusterIP service 1 internal id1+2 external id1+2",
			"0s put address 10.96.0.1 service",
			"0s attach",
			"0s 2 devices",
		}, dp.taken())
	})
}

func TestAVerdictThatNobodyTakesEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		inbox, ended := NewInbox(nil), make(chan struct{})
		go func() { inbox.Judge(ctx, lb.AddrPort{}, true, 0); close(ended) }()
		synctest.Wait()
		cancel()
		<-ended
	})
}

// Updates of one source stay in order however many others hand over, and however often
// the news is taken meanwhile.
func TestNewsIsTakenInOrderAndOnce(t *testing.T) {
	const sources, each = 4, 500
	inbox := NewInbox(nil)
	var writers sync.WaitGroup
	for source := range byte(sources) {
		writers.Go(func() {
			for n := range each {
				inbox.Update(lb.Update{ServiceCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, source, byte(n >> 8), byte(n)}), 32)}})
				inbox.SetNodeAddresses(map[netip.Addr]plan.AddressKind{})
				inbox.SetDevices(nil)
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	last, got := map[byte]int{}, 0
	for ended := false; !ended; {
		select {
		case <-inbox.wake:
		case <-done:
			ended = true
		}
		for _, u := range inbox.take().updates {
			a := u.ServiceCIDRs[0].Addr().As4()
			n := int(a[2])<<8 | int(a[3])
			if want := last[a[1]]; n != want {
				t.Fatalf("update %d of source %d came as number %d", n, a[1], want)
			}
			last[a[1]]++
			got++
		}
	}
	want(t, "updates", sources*each, got)
}

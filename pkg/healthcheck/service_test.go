package healthcheck

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

var (
	web   = lb.ServiceName{Namespace: "shop", Name: "web"}
	api   = lb.ServiceName{Namespace: "shop", Name: "api"}
	admin = lb.ServiceName{Namespace: "ops", Name: "admin"}
)

func TestAServiceIsAnsweredForByItsLocalEndpoints(t *testing.T) {
	n := newNode(t, nil)
	n.server.Close()
	n.wantOpen(t)

	n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: 9376}})
	n.wantOpen(t, ":9376")
	n.wantAnswer(t, ":9376", http.StatusServiceUnavailable, web, 0)

	for _, step := range []struct{ endpoints, code int }{{18, 200}, {0, 503}, {11, 200}} {
		n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: 9376, LocalEndpoints: step.endpoints}})
		n.wantAnswer(t, ":9376", step.code, web, step.endpoints)
	}
	if n.opened != 1 {
		t.Errorf("a change of endpoints alone opened the port %d times", n.opened)
	}
	n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {}})
	n.wantOpen(t)
}

func TestServicesComeGoAndChangePortsWithoutTouchingTheOthers(t *testing.T) {
	n := newNode(t, nil)
	n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: 9376, LocalEndpoints: 9}, api: {Port: 12909, LocalEndpoints: 3}, admin: {Port: 11113, LocalEndpoints: 7}})
	n.wantAnswer(t, ":9376", 200, web, 9)
	n.wantAnswer(t, ":12909", 200, api, 3)
	n.wantAnswer(t, ":11113", 200, admin, 7)
	before := n.dial(t, ":12909")

	n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {}, api: {Port: 12909, LocalEndpoints: 0}, admin: {Port: 11114, LocalEndpoints: 7}, {Namespace: "ops", Name: "new"}: {Port: 11878, LocalEndpoints: 6}})
	n.wantOpen(t, ":11114", ":11878", ":12909")
	n.wantAnswer(t, ":12909", 503, api, 0)
	n.wantAnswer(t, ":11114", 200, admin, 7)
	n.wantAnswer(t, ":11878", 200, lb.ServiceName{Namespace: "ops", Name: "new"}, 6)
	if _, err := before.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Errorf("a connection to a port that stayed is closed: %v", err)
	}
}

func TestAPortMovesFromOneServiceToAnotherInOneChange(t *testing.T) {
	n := newNode(t, nil)
	n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: 9376, LocalEndpoints: 1}, api: {Port: 9377, LocalEndpoints: 2}})
	n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: 9377, LocalEndpoints: 1}, api: {Port: 9376, LocalEndpoints: 2}})
	n.wantAnswer(t, ":9377", 200, web, 1)
	n.wantAnswer(t, ":9376", 200, api, 2)
	if len(n.failed) > 0 {
		t.Errorf("reported %v", n.failed)
	}
}

func TestNoServiceIsHealthyWhileTheProxyIsNot(t *testing.T) {
	n := newNode(t, nil)
	n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: 9376, LocalEndpoints: 7}})
	n.healthy.Store(false)
	n.wantAnswer(t, ":9376", 503, web, 7)
	n.healthy.Store(true)
	n.wantAnswer(t, ":9376", 200, web, 7)
}

func TestOnlyTheGivenAddressesAreListenedOn(t *testing.T) {
	n := newNode(t, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")})
	n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: 9376, LocalEndpoints: 1}})
	n.wantOpen(t, "192.0.2.1:9376", "[2001:db8::1]:9376")
	n.wantAnswer(t, "[2001:db8::1]:9376", 200, web, 1)

	n.server.SetAddresses([]netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")})
	n.wantOpen(t, "192.0.2.2:9376", "[2001:db8::1]:9376")
	if n.opened != 3 {
		t.Errorf("opened %d times: the address that stayed should have been left alone", n.opened)
	}
	n.server.SetAddresses([]netip.Addr{})
	n.wantOpen(t)
	n.server.SetAddresses(nil)
	n.wantOpen(t, ":9376")
}

func TestAFailureIsReportedOnceRetriedAndHurtsNoOther(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	n := newNode(t, addresses)
	n.refused["192.0.2.1:9376"] = true
	services := map[lb.ServiceName]lb.HealthCheck{web: {Port: 9376, LocalEndpoints: 1}, api: {Port: 9377, LocalEndpoints: 1}}
	n.server.Change(services)
	n.server.Change(services)
	n.server.Retry()
	n.wantOpen(t, "192.0.2.1:9377", "192.0.2.2:9376", "192.0.2.2:9377")
	failure := "shop/web: 192.0.2.1:9376 is taken"
	if diff := cmp.Diff([]string{failure}, n.failed); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	n.refused["192.0.2.1:9376"] = false
	n.server.Retry()
	n.wantAnswer(t, "192.0.2.1:9376", 200, web, 1)
	well := "shop/web: 9376 is well"
	if diff := cmp.Diff([]string{failure, well}, n.failed); diff != "" {
		t.Errorf("mended (-want +got):\n%s", diff)
	}

	n.server.SetAddresses(addresses[1:])
	n.refused["192.0.2.1:9376"] = true
	n.server.SetAddresses(addresses)
	if diff := cmp.Diff([]string{failure, well, failure}, n.failed); diff != "" {
		t.Errorf("a failure after all was well is new (-want +got):\n%s", diff)
	}
	n.server.Change(map[lb.ServiceName]lb.HealthCheck{web: {}})
	if diff := cmp.Diff([]string{failure, well, failure, well}, n.failed); diff != "" {
		t.Errorf("the Service is gone (-want +got):\n%s", diff)
	}
}

func TestAPortOfTheMachineThatIsTakenIsReported(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := netip.MustParseAddrPort(taken.Addr().String()).Port()
	var failed error
	s := NewServiceServer(ServiceConfig{
		Healthy: func() bool { return true },
		Report:  func(_ lb.ServiceName, _ uint16, err error) { failed = err },
	})
	defer s.Close()
	s.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: port, LocalEndpoints: 1}})
	if !errors.Is(failed, syscall.EADDRINUSE) {
		t.Errorf("reported %v", failed)
	}
}

func TestAPortIsServedSoonAfterAnotherProcessHasLeftIt(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(taken.Addr().String())
	s := NewServiceServer(ServiceConfig{Addresses: []netip.Addr{at.Addr()}, Healthy: func() bool { return true }})
	s.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: at.Port(), LocalEndpoints: 1}})
	ctx, cancel := contextOf(t)
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	left := time.Now()
	taken.Close()
	for time.Since(left) < 10*time.Second {
		resp, err := http.Get("http://" + at.String())
		if err == nil {
			resp.Body.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(left); took > 2500*time.Millisecond {
		t.Errorf("nobody answers for %v", took)
	}
}

func TestRunRetriesFourTimesASecondAndClosesAllAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taken, closed atomic.Bool
		var tries atomic.Int32
		taken.Store(true)
		s := NewServiceServer(ServiceConfig{
			Healthy: func() bool { return true },
			Listen: func(string, string) (net.Listener, error) {
				if tries.Add(1); taken.Load() {
					return nil, errors.New("taken")
				}
				return &silent{done: make(chan struct{}), closed: &closed}, nil
			},
		})
		s.Change(map[lb.ServiceName]lb.HealthCheck{web: {Port: 9376, LocalEndpoints: 1}})
		ctx, cancel := contextOf(t)
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		time.Sleep(2100 * time.Millisecond)
		synctest.Wait()
		if tries.Load() != 9 {
			t.Errorf("tried %d times in 2.1 s, want 9", tries.Load())
		}
		taken.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if tries.Load() != 10 {
			t.Errorf("tried %d times, want 10: what is open is left alone", tries.Load())
		}
		taken.Store(true)
		s.Change(map[lb.ServiceName]lb.HealthCheck{api: {Port: 9377, LocalEndpoints: 1}})
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if tries.Load() != 15 {
			t.Errorf("tried %d times, want 15: another port is missing for 1.1 s", tries.Load())
		}
		cancel()
		<-done
		if !closed.Load() {
			t.Error("the port is still open after the end")
		}
	})
}

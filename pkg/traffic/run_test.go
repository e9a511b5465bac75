package traffic

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestAScheduleHandsOutEveryExchangeOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		job  Job
		want []int
	}{
		{"one by one", Job{Count: 3}, []int{1, 1, 1}},
		{"socket by socket, the last with what is left", Job{Kind: UDPUnconnected, Count: 7, PerSocket: 3}, []int{3, 3, 1}},
		{"socket by socket, only for sockets that have several", Job{Kind: TCP, Count: 2, PerSocket: 3}, []int{1, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSchedule(tc.job.withDefaults())
			var got []int
			for {
				_, count := s.next(context.Background())
				if count == 0 {
					break
				}
				got = append(got, count)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("schedule (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAScheduleKeepsTheRate(t *testing.T) {
	s := newSchedule(Job{Count: 11, Rate: 100}.withDefaults())
	start := time.Now()
	for count := 1; count > 0; _, count = s.next(context.Background()) {
	}
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("11 exchanges at 100 a second took %s, want 100 ms at least", took)
	}
}

func TestAJobWithoutAnEndEndsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	var done atomic.Int64
	job := Job{Kind: TCP, Targets: []netip.AddrPort{refusing(t)}, Workers: 2}
	result, err := Run(ctx, job, &done)
	if err != nil || result.Failed() == 0 || result.Failed() != int(done.Load()) {
		t.Errorf("Run: %d failed of %d done, error %v", result.Failed(), done.Load(), err)
	}
}

func TestARefusedConnectionIsAFailureWithItsReason(t *testing.T) {
	target := refusing(t)
	for _, kind := range []Kind{TCP, Connect} {
		var done atomic.Int64
		result, err := Run(context.Background(), Job{Kind: kind, Targets: []netip.AddrPort{target}, Count: 3, WarmUp: 2}, &done)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{target.String() + ": connect: connection refused": 3}
		if diff := cmp.Diff(want, result.Failures()); diff != "" {
			t.Errorf("failures of %s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestAServerThatDoesNotAnswerIsAFailureInTime(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	target := silent.LocalAddr().(*net.UDPAddr).AddrPort()
	for _, kind := range []Kind{UDPConnected, UDPUnconnected} {
		var done atomic.Int64
		job := Job{Kind: kind, Targets: []netip.AddrPort{target}, Count: 1, Timeout: 20 * time.Millisecond}
		result, err := Run(context.Background(), job, &done)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{target.String() + ": receive: no answer in time": 1}
		if diff := cmp.Diff(want, result.Failures()); diff != "" {
			t.Errorf("failures of %s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestAnAnswerFromAnotherAddressIsAFailure(t *testing.T) {
	server, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	defer server.Close()
	go func() {
		buffer := make([]byte, 100)
		if n, client, err := server.ReadFromUDPAddrPort(buffer); err == nil {
			_, _ = other.WriteToUDPAddrPort(append([]byte("impostor "), buffer[:n]...), client)
		}
	}()
	var done atomic.Int64
	target := server.LocalAddr().(*net.UDPAddr).AddrPort()
	result, err := Run(context.Background(), Job{Kind: UDPUnconnected, Targets: []netip.AddrPort{target}, Count: 1}, &done)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{target.String() + ": answer comes from " + other.LocalAddr().String(): 1}
	if diff := cmp.Diff(want, result.Failures()); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

func TestAnotherPeerThanAskedForIsAnError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s, err := openSocket(listener.Addr().(*net.TCPAddr).AddrPort(), unix.SOCK_STREAM, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.connect(); err != nil {
		t.Fatal(err)
	}
	if err := s.checkPeer(); err != nil {
		t.Errorf("the peer that was asked for: %s", err)
	}
	s.target = refusing(t)
	want := "getpeername gives " + listener.Addr().String()
	if err := s.checkPeer(); err == nil || err.Error() != want {
		t.Errorf("another peer: error %v, want %q", err, want)
	}
}

func TestAJobThatMakesNoSenseIsAnError(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		job        Job
	}{
		{"without targets", "no targets", Job{Kind: TCP}},
		{"of an unknown kind", `unknown kind "sctp"`, Job{Kind: "sctp", Targets: []netip.AddrPort{refusing(t)}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Run(context.Background(), tc.job, new(atomic.Int64))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Run: error %v, want %q", err, tc.want)
			}
		})
	}
}

// refusing returns an address where nothing listens.
func refusing(tb testing.TB) netip.AddrPort {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

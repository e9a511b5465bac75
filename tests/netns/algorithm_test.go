package netns_test

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
)

const spreadVIP = "10.96.7.7:53/UDP"

// silent returns n backends that nobody needs to answer for: a datagram socket
// connects to any address of loopback.
func silent(n int) (out []lb.AddrPort) {
	for i := range n {
		out = append(out, lb.AddrPort{Addr: netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), Port: 53, Protocol: lb.UDP})
	}
	return out
}

// spreadOver is a frontend by an algorithm.
func spreadOver(a lb.Algorithm, backends []lb.AddrPort, weights ...uint32) lb.Frontend {
	v := lb.View{Backends: backends, Weights: weights}
	return lb.Frontend{AddrPort: mustAddrPort(spreadVIP), Port: "main", Policy: lb.Policy{Algorithm: a}, Views: [lb.NumViews]lb.View{lb.Internal: v, lb.External: v}, Members: backends}
}

// connectMany opens datagram sockets that are connected to the Service.
func connectMany(t *testing.T, count int) (out []*socket) {
	t.Helper()
	for range count {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := &socket{t, fd, inet}
		t.Cleanup(s.close)
		s.mustConnect(at(spreadVIP))
		out = append(out, s)
	}
	return out
}

func closeAll(sockets []*socket) {
	for _, s := range sockets {
		s.close()
	}
}

// roomyNode is one whose maps need not grow for 5,000 backends.
func roomyNode(t *testing.T) *node {
	t.Helper()
	cfg := config(t)
	cfg.Sizes.Slots, cfg.Sizes.Backends = 1<<21, 1<<14
	return mustNodeOf(t, cfg)
}

// inFlight returns the connections in flight of backends, in their order.
func (n *node) inFlight(backends []lb.AddrPort) (out []int) {
	n.tb.Helper()
	n.inspect(func(i *datapath.Reader) error {
		at := map[lb.AddrPort]int{}
		for _, b := range i.Backends() {
			at[b.At] = int(b.InFlight)
		}
		for _, b := range backends {
			out = append(out, at[b])
		}
		return nil
	})
	return out
}

func sum(all []int) (n int) {
	for _, i := range all {
		n += i
	}
	return n
}

// TestTheAlgorithmDecidesWhoGetsAConnection opens a thousand connections that stay
// open, and compares what every backend has with what it should have.
func TestTheAlgorithmDecidesWhoGetsAConnection(t *testing.T) {
	n := roomyNode(t)
	unweighted, steep := []uint32(nil), []uint32{1, 1, 1, 1, 1, 1, 1, 1, 2, 10}
	for _, c := range []struct {
		algorithm lb.Algorithm
		weights   []uint32
		most      float64 // of what a backend should have, that any of them has
	}{
		{lb.Random, unweighted, 1.5},
		{lb.Random, steep, 1.7},
		{lb.RR, unweighted, 1},
		{lb.WRR, unweighted, 1},
		{lb.WRR, steep, 1},
		{lb.LC, unweighted, 1},
		{lb.LC, steep, 2}, // weights mean nothing to it
		{lb.WLC, steep, 1.02},
		{lb.SED, unweighted, 1},
		{lb.SED, steep, 1.05},
		{lb.NQ, unweighted, 1},
		{lb.NQ, steep, 1.05},
		{lb.P2C, unweighted, 1.03},
		{lb.P2C, steep, 1.15},
		{lb.Latency, unweighted, 1.03},
		{lb.Maglev, unweighted, 1.5},
		{lb.Maglev, steep, 1.7},
		{lb.Stable, unweighted, 1.5},
	} {
		t.Run(fmt.Sprint(c.algorithm, c.weights), func(t *testing.T) {
			const connections = 1000
			backends := silent(10)
			n.set("spread", spreadOver(c.algorithm, backends, c.weights...))
			sockets := connectMany(t, connections)
			got := n.inFlight(backends)
			closeAll(sockets)
			total := 10.0
			if c.weights != nil && c.algorithm != lb.LC {
				total = 20
			}
			worst := 0.0
			for i, open := range got {
				weight := 1.0
				if c.weights != nil && c.algorithm != lb.LC {
					weight = float64(c.weights[i])
				}
				worst = math.Max(worst, float64(open)*total/weight/connections)
			}
			t.Logf("%v: at most %.3f of what it should be", got, worst)
			if sum(got) != connections || worst > c.most {
				t.Errorf("%v: %d connections, at most %.3f of what it should be, want %.3f", got, sum(got), worst, c.most)
			}
			if left := n.inFlight(backends); sum(left) != 0 {
				t.Errorf("all sockets are closed, in flight is %v", left)
			}
		})
	}
}

// Clients in one namespace are one source, and a Service address one destination.
func TestSourceAndDestinationHashesStayWithABackend(t *testing.T) {
	n := roomyNode(t)
	backends := silent(10)
	for _, a := range []lb.Algorithm{lb.SH, lb.DH} {
		n.set("spread", spreadOver(a, backends))
		sockets := connectMany(t, 50)
		if got := n.inFlight(backends); !slices.Contains(got, 50) {
			t.Errorf("%s: %v in flight, want all at one backend", a, got)
		}
		closeAll(sockets)
	}
}

func TestTablesOfEverySizeServe(t *testing.T) {
	n := roomyNode(t)
	for a := lb.Random; a <= lb.Latency; a++ {
		for _, size := range []int{1, 2, 3, 10, 100, 256, 257, 5000} {
			backends := silent(size)
			var weights []uint32
			for i := range backends {
				weights = append(weights, uint32(1+i%3))
			}
			n.set("spread", spreadOver(a, backends, weights...))
			sockets := connectMany(t, 20)
			if got := n.inFlight(backends); sum(got) != len(sockets) {
				t.Errorf("%s over %d backends: %d in flight, want %d", a, size, sum(got), len(sockets))
			}
			closeAll(sockets)
			n.sweep()
		}
	}
}

// A sample of a large table finds those that have little.
func TestLargeTablesAreSampledWell(t *testing.T) {
	const size, connections = 2000, 4000
	n := roomyNode(t)
	backends := silent(size)
	for _, a := range []lb.Algorithm{lb.LC, lb.P2C} {
		n.set("spread", spreadOver(a, backends))
		sockets := connectMany(t, connections)
		got := n.inFlight(backends)
		t.Logf("%s: %d connections over %d backends, at most %d at one", a, connections, size, slices.Max(got))
		if want := map[lb.Algorithm]int{lb.LC: 3, lb.P2C: 6}[a]; slices.Max(got) > want {
			t.Errorf("%s: %d connections at one backend, mean is 2", a, slices.Max(got))
		}
		closeAll(sockets)
	}
}

// Backends come and go, and algorithms change, while clients connect: nobody is
// refused, and in the end nothing is in flight.
func TestAnAlgorithmChangesWhileClientsConnect(t *testing.T) {
	n := roomyNode(t)
	n.set("spread", spreadOver(lb.Random, silent(5)))
	held := connectMany(t, 200)
	stop, failed := make(chan struct{}), make(chan error, 2)
	for range 2 {
		go func() {
			for {
				select {
				case <-stop:
					failed <- nil
					return
				default:
				}
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				if err == nil {
					err = again(func() error { return unix.Connect(fd, inetAddr(at(spreadVIP))) })
					_ = unix.Close(fd)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	for round := range 3 {
		for a := lb.Random; a <= lb.Latency; a++ {
			backends := silent(5 + (round+int(a))%4)
			n.set("spread", spreadOver(a, backends, []uint32{1, 2, 3, 4, 5, 6, 7, 8}[:len(backends)]...))
			n.sweep()
		}
	}
	close(stop)
	for range 2 {
		if err := <-failed; err != nil {
			t.Errorf("connect during a change: %v", err)
		}
	}
	if got := n.inFlight(silent(5)); sum(got) != len(held) {
		t.Errorf("%v in flight, want the %d sockets that are held", got, len(held))
	}
	for i, s := range held {
		s.wantPeer(at(spreadVIP), fmt.Sprint("held socket ", i))
	}
}

func inetAddr(a netip.AddrPort) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

package datapath_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// echo serves TCP and UDP at an address of the loopback device.
func echo(tb testing.TB, at lb.AddrPort) {
	tb.Helper()
	testenv.AddAddress(tb, at.Addr.String())
	address := netip.AddrPortFrom(at.Addr, at.Port).String()
	if at.Protocol == lb.UDP {
		c, err := net.ListenPacket("udp", address)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { c.Close() })
		go func() {
			b := make([]byte, 100)
			for {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = c.WriteTo(b[:n], from)
			}
		}()
		return
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	testenv.Echo(tb, l)
}

// mustDial connects, and sees that something answers.
func mustDial(tb testing.TB, at lb.AddrPort) net.Conn {
	tb.Helper()
	network := map[lb.Protocol]string{lb.TCP: "tcp", lb.UDP: "udp"}[at.Protocol]
	c, err := net.Dial(network, netip.AddrPortFrom(at.Addr, at.Port).String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	if err := exchange(c); err != nil {
		tb.Fatal(err)
	}
	return c
}

func exchange(c net.Conn) error {
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// servicePort writes a frontend with one backend of which new connections, and
// established ones, know as given.
func servicePort(id uint32, at, backend lb.AddrPort, takesNew, known bool) []plan.Op {
	f := plan.Frontend{Service: id}
	table := plan.Table{Offset: id, Size: 1}
	if takesNew {
		f.Views[lb.Internal] = plan.View{Table: table}
	}
	if known {
		f.Members = table
	}
	return []plan.Op{
		plan.PutBackend{ID: id, Backend: backend},
		plan.PutTable{Table: table, Backends: []uint32{id}},
		plan.PutService{ID: id, Service: plan.Service{ServiceName: lb.ServiceName{Namespace: "ns", Name: "s"}, Protocol: at.Protocol}},
		plan.PutFrontend{Key: at, Value: f},
	}
}

func TestSocketsOfALostBackendAreToldAndOthersLeftAlone(t *testing.T) {
	for _, c := range []struct {
		name     string
		entries  uint32
		protocol lb.Protocol
		vip      string
		backend  string
	}{
		{"TCP, IPv4", 1024, lb.TCP, "10.96.0.1", "10.0.0.1"},
		{"TCP, IPv6", 1024, lb.TCP, "fd00:96::1", "fd00::1"},
		{"UDP, IPv4", 1024, lb.UDP, "10.96.0.1", "10.0.0.1"},
		{"UDP, IPv6", 1024, lb.UDP, "fd00:96::1", "fd00::1"},
		{"TCP, entry in socket storage", 1, lb.TCP, "10.96.0.1", "10.0.0.1"},
	} {
		told := func(t *testing.T, diag bool, how string) {
			cfg := config(t)
			cfg.SocketEntries, cfg.Diag = c.entries, diag
			cfg.ReportSockets = func(got string) {
				if !strings.HasPrefix(got, how) {
					t.Errorf("told that sockets are %q, want %q", got, how)
				}
			}
			d := mustOpen(t, cfg)
			vip := lb.AddrPort{Addr: netip.MustParseAddr(c.vip), Port: 80, Protocol: c.protocol}
			other := lb.AddrPort{Addr: vip.Addr, Port: 81, Protocol: c.protocol}
			backend := lb.AddrPort{Addr: netip.MustParseAddr(c.backend), Port: 8080, Protocol: c.protocol}
			echo(t, backend)
			mustApply(t, d, servicePort(1, vip, backend, true, true)...)
			mustApply(t, d, servicePort(2, other, backend, true, true)...)
			if err := d.Attach(); err != nil {
				t.Fatal(err)
			}
			leaving, staying := mustDial(t, vip), mustDial(t, other)

			lost := []plan.Loss{{Frontend: vip, Backend: backend}}
			mustApply(t, d, servicePort(1, vip, backend, false, true)...)
			mustDestroy(t, d, lost)
			if err := exchange(leaving); err != nil {
				t.Errorf("a socket of a draining backend: %v", err)
			}
			mustApply(t, d, servicePort(1, vip, backend, false, false)...)
			mustDestroy(t, d, lost)
			want := map[lb.Protocol]error{lb.TCP: syscall.ECONNABORTED, lb.UDP: syscall.EDESTADDRREQ}[c.protocol]
			if err := exchange(leaving); !errors.Is(err, want) {
				t.Errorf("a socket of a lost backend says %v, want %v", err, want)
			}
			if err := exchange(staying); err != nil {
				t.Errorf("a socket of the same backend by another Service: %v", err)
			}
			if n := mustInspect(t, cfg).Counters["socket_destroyed"]; n != 1 {
				t.Errorf("%d sockets are counted, want 1", n)
			}
		}
		t.Run(c.name, func(t *testing.T) { told(t, false, "told of lost backends") })
		t.Run(c.name+", through INET_DIAG", func(t *testing.T) { told(t, true, "told of lost backends through INET_DIAG") })
	}
}

// The programs that tell sockets are those of the maps in use: former maps know nothing of a
// frontend that came after they were replaced.
func TestSocketsAreToldByTheMapsInUse(t *testing.T) {
	d := mustOpen(t, config(t))
	backend := lb.AddrPort{Addr: netip.MustParseAddr("10.0.0.1"), Port: 8080, Protocol: lb.TCP}
	old := lb.AddrPort{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: lb.TCP}
	late := lb.AddrPort{Addr: old.Addr, Port: 81, Protocol: lb.TCP}
	echo(t, backend)
	mustApply(t, d, servicePort(1, old, backend, true, true)...)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	leaving := mustDial(t, old)
	mustDestroy(t, d, nil)
	if err := exchange(leaving); err != nil {
		t.Errorf("a socket is told though nothing is lost: %v", err)
	}
	if err := d.Reserve(plan.Sizes{Frontends: 2 * datapath.DefaultSizes.Frontends}); err != nil {
		t.Fatal(err)
	}
	mustApply(t, d, servicePort(2, late, backend, true, true)...)
	staying := mustDial(t, late)
	mustApply(t, d, servicePort(1, old, backend, false, false)...)
	mustDestroy(t, d, nil)
	if err := exchange(leaving); !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("a socket of a lost backend says %v, want %v", err, syscall.ECONNABORTED)
	}
	if err := exchange(staying); err != nil {
		t.Errorf("a socket of a frontend that came after the maps grew: %v", err)
	}
}

func mustDestroy(tb testing.TB, d *datapath.Datapath, losses []plan.Loss) {
	tb.Helper()
	err := d.DestroySockets(losses)
	if err != nil {
		tb.Fatal(err)
	}
}

// What it takes to tell one connection of its lost backend, once what that takes is loaded
// and where it has to be loaded: wall time, of which most is a grace period, and CPU.
func BenchmarkDestroySockets(b *testing.B) {
	vip := lb.AddrPort{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: lb.TCP}
	backend := lb.AddrPort{Addr: netip.MustParseAddr("10.0.0.1"), Port: 8080, Protocol: lb.TCP}
	for _, c := range []struct {
		name   string
		anew   bool
		client bool
	}{{"kept", false, true}, {"kept, no client", false, false}, {"loaded anew", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			cfg := config(b)
			cfg.SocketEntries = datapath.DefaultSocketEntries
			d := mustOpen(b, cfg)
			echo(b, backend)
			mustApply(b, d, servicePort(1, vip, backend, true, true)...)
			if err := d.Attach(); err != nil {
				b.Fatal(err)
			}
			if c.client {
				mustDial(b, vip)
			}
			mustDestroy(b, d, nil)
			b.ReportAllocs()
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				mustApply(b, d, servicePort(1, vip, backend, true, true)...)
				if c.client {
					mustDial(b, vip)
				}
				mustApply(b, d, servicePort(1, vip, backend, false, false)...)
				if c.anew {
					datapath.Forget(d)
				}
				from := cpuTime(b)
				b.StartTimer()
				mustDestroy(b, d, []plan.Loss{{Frontend: vip, Backend: backend}})
				b.StopTimer()
				spent += cpuTime(b) - from
				b.StartTimer()
			}
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "CPU-µs/op")
		})
	}
}

// cpuTime is what this process has used of CPUs.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

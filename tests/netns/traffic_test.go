package netns_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// traffic returns that of Service default/name, and the sum of that of all backends.
func (n *node) traffic(name string) (service datapath.ServiceTraffic, backends datapath.Traffic) {
	n.tb.Helper()
	n.inspect(func(i *datapath.Reader) error {
		for id, s := range n.content().Services {
			if s.Name == name {
				t, err := i.Traffic(id)
				if err != nil {
					return err
				}
				service = t
			}
		}
		for _, b := range i.Backends() {
			backends.BytesTo += b.BytesTo
			backends.BytesFrom += b.BytesFrom
			backends.Failed.Refused += b.Failed.Refused
			backends.Failed.TimedOut += b.Failed.TimedOut
			backends.Failed.Reset += b.Failed.Reset
		}
		return nil
	})
	return service, backends
}

// wantBytes compares what was counted for Service default/web and with its backends.
func (n *node) wantBytes(what string, to, from int) {
	n.tb.Helper()
	s, b := n.traffic("web")
	if s.BytesTo != uint64(to) || s.BytesFrom != uint64(from) || b.BytesTo != uint64(to) || b.BytesFrom != uint64(from) {
		n.tb.Errorf("%s: %d bytes to the Service and %d from it, %d to backends and %d from them, want %d and %d",
			what, s.BytesTo, s.BytesFrom, b.BytesTo, b.BytesFrom, to, from)
	}
}

// exchange sends so many bytes, and reads as many.
func (s *socket) exchange(bytes int) {
	s.tb.Helper()
	text := strings.Repeat("x", 8192)
	for bytes > 0 {
		piece := min(bytes, len(text))
		s.send(text[:piece])
		for got := 0; got < piece; {
			echo, _ := s.receive()
			got += len(echo)
		}
		bytes -= piece
	}
}

// readToEnd closes the socket's side and reads until the backend has closed its own.
func (s *socket) readToEnd() {
	s.tb.Helper()
	if err := unix.Shutdown(s.fd, unix.SHUT_WR); err != nil {
		s.tb.Fatal(err)
	}
	for {
		if text, _ := s.receive(); text == "" {
			return
		}
	}
}

func TestTheBytesOfATCPSocketCountWhenItIsClosed(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		n, vip, b := tcpService(t, k)
		to, from := 0, 0
		for _, bytes := range []int{0, 1, 100_000} {
			for _, end := range []func(*socket){func(*socket) {}, (*socket).readToEnd} {
				s, _ := dialTCP(t, k, vip)
				s.exchange(bytes)
				end(s)
				n.wantBytes("while it is open", to, from)
				s.close()
				to, from = to+bytes, from+len(b.name())+bytes
				n.wantBytes("closed", to, from)
			}
		}
		s, _ := n.traffic("web")
		if got := s.ConnectTimes.Count(); got != 6 || s.ConnectTimes.Within(1) > time.Second {
			t.Errorf("%d connects took %v at the most, want 6 of less than a second", got, s.ConnectTimes.Within(1))
		}
		if s.Failed != (datapath.Failures{}) {
			t.Errorf("failures: %+v", s.Failed)
		}
	})
}

// What a socket has not been able to send by the time it is closed the kernel still sends.
func TestWhatIsWrittenCountsBeforeItIsSent(t *testing.T) {
	n := mustNode(t)
	b := mustServeNothing(t, "10.244.0.2:8080/TCP")
	n.set("web", frontend(webVIP+"/TCP", b))
	s := mustBegin(t, at(webVIP))
	s.await(unix.POLLOUT)
	wrote := 0
	for {
		n, err := unix.Write(s.fd, make([]byte, 1<<16))
		if err != nil {
			break // the buffers are full
		}
		wrote += n
	}
	s.close()
	n.wantBytes("closed", wrote, 0)
}

// mustServeNothing is a server that takes connections and reads nothing.
func mustServeNothing(tb testing.TB, at string) *backend {
	tb.Helper()
	b := nobody(tb, at)
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(b.addr()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return b
}

// A socket that stays open counts by and by, exactly once, also if agents and maps are replaced meanwhile.
func TestTheBytesOfASocketThatStaysOpenCountOnce(t *testing.T) {
	for name, slots := range map[string]uint32{"in a slot": 1 << 12, "in socket storage": 1} {
		t.Run(name, func(t *testing.T) {
			if slots == 1 {
				testenv.NeedStorageIterators(t)
			}
			cfg := config(t)
			cfg.SocketEntries = slots
			n, b := mustNodeOf(t, cfg), mustServe(t, "10.244.0.1:8080/TCP")
			n.set("web", frontend(webVIP+"/TCP", b))
			s, _ := dialTCP(t, inet, at(webVIP))
			other, _ := dialTCP(t, inet, at(webVIP)) // one of two has no slot if there is but one
			to, from := 0, 2*len(b.name())
			recount := func(what string) {
				t.Helper()
				s.exchange(1000)
				other.exchange(10)
				to, from = to+1010, from+1010
				for range 2 {
					if _, err := n.dp.Recount(); err != nil {
						t.Fatal(err)
					}
					n.wantBytes(what, to, from)
				}
			}
			recount("at first")
			recount("once more")
			n.dp.Close()
			n = mustNodeOf(t, cfg)
			recount("by the next agent")
			if err := n.dp.Reserve(plan.Sizes{Frontends: 64, Slots: 64, Backends: 64, Services: 64, Addresses: 64}); err != nil {
				t.Fatal(err)
			}
			recount("in larger maps")
			s.exchange(5)
			s.readToEnd()
			s.close()
			other.close()
			n.wantBytes("closed", to+5, from+5)
		})
	}
}

func TestFailuresOfBackendsCountByReason(t *testing.T) {
	n := mustNode(t)
	want := func(what string, f datapath.Failures) {
		t.Helper()
		s, b := n.traffic("web")
		if s.Failed != f || b.Failed != f {
			t.Errorf("%s: failures of the Service %+v, of backends %+v, want %+v", what, s.Failed, b.Failed, f)
		}
	}
	n.set("web", frontend(webVIP+"/TCP", nobody(t, "10.244.0.1:8080/TCP")))
	connects(t, 3, at(webVIP))
	want("refused", datapath.Failures{Refused: 3})
	n.set("web", frontend(webVIP+"/TCP", fullBacklog(t, "10.244.0.2:8080/TCP")))
	n.sweep()
	mustBegin(t, at(webVIP)).close()
	s, _ := n.traffic("web")
	if s.Failed != (datapath.Failures{Refused: 3, TimedOut: 1}) {
		t.Errorf("given up: %+v", s.Failed)
	}
	n.set("web", frontend(webVIP+"/TCP", mustServeResets(t, "10.244.0.3:8080/TCP")))
	reset, _ := dialTCP(t, inet, at(webVIP))
	reset.await(unix.POLLHUP)
	s, _ = n.traffic("web")
	if s.Failed != (datapath.Failures{Refused: 3, TimedOut: 1, Reset: 1}) {
		t.Errorf("reset: %+v", s.Failed)
	}
	reset.close()
	if s, _ := n.traffic("web"); s.Failed.Sum() != 5 || s.Connections != 5 {
		t.Errorf("closed: %d failures of %d connections, want 5 of 5", s.Failed.Sum(), s.Connections)
	}
}

// mustServeResets is a server that says its name, and resets the connection.
func mustServeResets(tb testing.TB, at string) *backend {
	tb.Helper()
	b := nobody(tb, at)
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(b.addr()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return // the test has ended
			}
			_, _ = io.WriteString(c, b.name())
			time.Sleep(50 * time.Millisecond) // until that is read
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}()
	return b
}

// A backlog that is full has the kernel drop a SYN, which the client sends again after a second.
func TestASYNThatIsSentAgainTakesASecond(t *testing.T) {
	n := mustNode(t)
	b := nobody(t, "10.244.0.1:8080/TCP")
	l := mustSocket(t, inet, unix.SOCK_STREAM)
	if err := errors.Join(unix.Bind(l.fd, l.sockaddr(b.addr())), unix.Listen(l.fd, 0)); err != nil {
		t.Fatal(err)
	}
	mustBegin(t, b.addr())
	n.set("web", frontend(webVIP+"/TCP", b))
	s := mustBegin(t, at(webVIP))
	for n.status().Counters["backend_failed"] == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	for range 2 { // make room
		if fd, _, err := unix.Accept(l.fd); err != nil {
			t.Fatal(err)
		} else {
			defer unix.Close(fd)
		}
	}
	s.await(unix.POLLOUT)
	s.close()
	if s, _ := n.traffic("web"); s.ConnectTimes.Within(1) < time.Second || s.ConnectTimes.Count() != 1 {
		t.Errorf("%d connects took %v, want one of more than a second", s.ConnectTimes.Count(), s.ConnectTimes.Within(1))
	}
}

func TestWhatIsNotToBeCountedIsNot(t *testing.T) {
	cfg := config(t)
	cfg.Traffic = false
	n, b := mustNodeOf(t, cfg), mustServe(t, "10.244.0.1:8080/TCP")
	n.set("web", frontend(webVIP+"/TCP", b))
	s, _ := dialTCP(t, inet, at(webVIP))
	s.exchange(1000)
	if _, err := n.dp.Recount(); err != nil {
		t.Fatal(err)
	}
	s.close()
	n.set("web", frontend(webVIP+"/TCP", nobody(t, "10.244.0.2:8080/TCP")))
	connects(t, 1, at(webVIP))
	if s, _ := n.traffic("web"); s.Traffic != (datapath.Traffic{}) || s.ConnectTimes.Count() != 0 || s.Connections != 2 {
		t.Errorf("counted: %+v", s)
	}
}

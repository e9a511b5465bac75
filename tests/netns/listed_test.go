package netns_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/tests/testenv"
)

// listed returns the sockets that go to backends of Services "one", "two" and so on, in order,
// a line for each.
func (n *node) listed() (all []string) {
	n.tb.Helper()
	var list datapath.SocketList
	defer list.Close()
	n.inspect(func(r *datapath.Reader) error {
		return list.Each(r, func(s datapath.Socket) error {
			service, err := r.Service(s.Service)
			if s.Asked != at("10.96.9.9:53") { // see takeOnlySlot
				all = append(all, fmt.Sprintln(s.Call, s.From, s.Asked, lb.AddrPort{Addr: s.Backend.Addr(), Port: s.Backend.Port(), Protocol: s.Protocol}, s.State, service.Name))
			}
			return err
		})
	})
	slices.Sort(all)
	return all
}

// wantListed wants these lines, each "CALL FROM ASKED BACKEND STATE SERVICE", in any order.
func (n *node) wantListed(when string, want ...string) {
	n.tb.Helper()
	want = slices.Sorted(slices.Values(want))
	if got := n.listed(); !slices.Equal(got, want) {
		n.tb.Errorf("%s: listed are\n%swant\n%s", when, strings.Join(got, ""), strings.Join(want, ""))
	}
}

// line is how a socket is listed.
func (s *socket) line(call, asked string, b *backend, state datapath.FlowState, service string) string {
	from := s.local()
	return fmt.Sprintln(call, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), at(asked), b.name(), state, service)
}

func TestSocketsThatGoToBackendsAreListed(t *testing.T) {
	forEachPlace(t, func(t *testing.T, k kind, n *node) {
		b, other := udpBackend(t, k, 1), udpBackend(t, k, 2)
		web := mustServe(t, k.pick("10.244.0.3:8080/TCP", "[fd00:244::3]:8080/TCP"))
		one, two, three := udpVIP(k, 1), udpVIP(k, 2), k.pick("10.96.0.3:80/TCP", "[fd00:96::3]:80/TCP")
		n.set("one", frontend(one, b))
		n.set("two", frontend(two, other))
		n.set("three", frontend(three, web))
		n.wantListed("at first")
		mustConnected(t, k, b.addr().String()) // past the Services
		n.wantListed("with one that asks no Service")
		connected := mustConnected(t, k, one)[0]
		unconnected := mustSocket(t, k, unix.SOCK_DGRAM)
		unconnected.ask(at(one))
		unconnected.ask(at(two))
		stream, _ := dialTCP(t, k, at(three))
		all := []string{
			connected.line("connect", one, b, datapath.FlowEstablished, "one"),
			unconnected.line("sendmsg", one, b, datapath.FlowUnconnected, "one"),
			unconnected.line("sendmsg", two, other, datapath.FlowUnconnected, "two"),
			stream.line("connect", three, web, datapath.FlowEstablished, "three"),
		}
		n.wantListed("connected", all...)
		unconnected.close()
		n.wantListed("after a socket is closed", all[0], all[3])
	})
}

func TestAConnectionThatItsBackendEndsIsListedAsClosing(t *testing.T) {
	n := mustNode(t)
	b := &backend{at: mustAddrPort("127.0.0.1:8080/TCP")}
	l, err := net.Listen("tcp", b.addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n.set("one", frontend("10.96.0.1:80/TCP", b))
	s := mustSocket(t, inet, unix.SOCK_STREAM)
	s.mustConnect(at("10.96.0.1:80"))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.receive() // nothing, once its end is here
	n.wantListed("ended by the backend", s.line("connect", "10.96.0.1:80", b, datapath.FlowClosing, "one"))
}

// What a socket keeps itself, in a long list, too, and in any network namespace.
func TestASocketOfAPodIsListedForEachService(t *testing.T) {
	n := mustNodeOf(t, roomy(config(t)))
	testenv.EnterNetns(t)
	keepNamespace(t)
	vips := manyDNS(t, n, inet, 40)
	s := mustSocket(t, inet, unix.SOCK_DGRAM)
	for _, vip := range vips {
		s.ask(at(vip))
	}
	got := n.listed()
	if len(got) != len(vips) || n.allInFlight() != len(vips) {
		t.Errorf("%d are listed and %d in flight, want %d", len(got), n.allInFlight(), len(vips))
	}
	for _, vip := range vips {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, " "+at(vip).String()+" ") }) {
			t.Errorf("none that asked for %s is listed", vip)
		}
	}
}

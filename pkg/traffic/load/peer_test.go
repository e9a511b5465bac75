package load

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

func TestAResponseFromElsewhereFailsAnUnconnectedSocket(t *testing.T) {
	asked, other := mustListenUDP(t), mustListenUDP(t)
	go func() {
		buffer := make([]byte, 100)
		for {
			n, client, err := asked.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			r, _ := wire.ParseRequest(buffer[:n])
			answer := make([]byte, wire.AnswerLength(0, "other"))
			wire.PutAnswer(answer, r.Sequence, 0, "other")
			_, _ = other.WriteToUDPAddrPort(answer, client)
		}
	}()
	target := asked.LocalAddr().(*net.UDPAddr).AddrPort()
	run := mustRun(t, Spec{Kind: SendTo, Targets: []netip.AddrPort{target}, Rate: 100, Duration: 100 * time.Millisecond, Unchecked: true})
	if run.Completed != 0 || run.Errors[result.BadAnswer] != run.Due {
		t.Errorf("%d of %d completed, errors are %v; want bad answers", run.Completed, run.Due, run.Errors)
	}
	if want := "comes from " + other.LocalAddr().String(); !strings.Contains(run.ErrorExamples[result.BadAnswer], want) {
		t.Errorf("the error is %q, want %q in it", run.ErrorExamples[result.BadAnswer], want)
	}
}

func mustListenUDP(tb testing.TB) *net.UDPConn {
	tb.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn
}

func TestPeersThatAreTheTargetsAreNoError(t *testing.T) {
	_, targets := mustServe(t, serve.Options{}, "a", "b")
	for _, kind := range Kinds() {
		if kind == Bulk || kind == Packets {
			continue // they ask nobody for the peer
		}
		wantNoErrors(t, mustRun(t, Spec{Kind: kind, Targets: targets, Rate: 200, Duration: 100 * time.Millisecond, CheckPeer: true}))
	}
}

// Connections lead where the kernel was told; what the load asked for is another
// address.
func TestAnotherPeerThanTheTargetFailsASocket(t *testing.T) {
	_, targets := mustServe(t, serve.Options{}, "a", "b")
	for _, kind := range []Kind{Connect, CRR, UDP} {
		spec := Spec{Kind: kind, Targets: targets[:1], Duration: time.Second, CheckPeer: true}.withDefaults()
		s, err := newSender(&spec, 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s.sockaddrs[0] = netio.Sockaddr(targets[1])
		c := &s.conns[0]
		if err := s.dial(c); err != nil {
			t.Fatal(err)
		}
		for connected(c.fd) != nil {
			time.Sleep(time.Millisecond)
		}
		want := "getpeername gives " + targets[1].String()
		if err := s.checkPeer(c); !errors.Is(err, errAnswer) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", kind, err, want)
		}
		s.spec.CheckPeer = false
		if err := s.checkPeer(c); err != nil {
			t.Errorf("%s: error %v of what is not checked", kind, err)
		}
		s.close()
	}
}

// connected returns an error as long as a socket has no peer.
func connected(fd int) error {
	_, err := unix.Getpeername(fd)
	return err
}

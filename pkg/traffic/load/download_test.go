package load

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic/serve"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

func TestADownloadIsCountedWhereItArrives(t *testing.T) {
	server, targets := mustServe(t, serve.Options{}, "a", "b")
	run := mustRun(t, Spec{Kind: Bulk, Download: true, Targets: targets, Duration: 300 * time.Millisecond, Connections: 4})
	wantNoErrors(t, run)
	var sent uint64
	for _, s := range server.Stats() {
		sent += s.Bytes
	}
	if run.Bytes.Received == 0 || run.Bytes.Received > sent || run.Bytes.Sent != 0 || run.Completed != 4 {
		t.Errorf("received %d bytes of %d that were sent, sent %d, %d connections", run.Bytes.Received, sent, run.Bytes.Sent, run.Completed)
	}
	// What comes in the end, from buffers, is not of the measured time.
	if share := float64(run.Bytes.Received) / float64(sent); share < 0.5 {
		t.Errorf("only %.2f of what was sent was counted", share)
	}
	var line uint64
	for _, p := range run.TimeLine {
		line += p.Bytes
	}
	if line != run.Bytes.Received || len(run.Backends) != 2 || run.Backends[0].Choices != 2 || !run.Load.Download {
		t.Errorf("the time line has %d of %d bytes, backends are %v", line, run.Bytes.Received, run.Backends)
	}
	if want := run.PerSecond() * run.Elapsed.Seconds(); run.Done() != uint64(want+0.5) {
		t.Errorf("the rate is %v, of %d bytes", run.PerSecond(), run.Done())
	}
}

// liar sends fewer bytes than it says, or ends in the middle.
func liar(t *testing.T, early bool) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request := make([]byte, wire.RequestHeader)
				if _, err := io.ReadFull(conn, request); err != nil {
					return
				}
				_, _ = conn.Write(make([]byte, 1000))
				if early {
					return
				}
				_, _ = io.Copy(io.Discard, conn)
				answer := make([]byte, wire.AnswerLength(0, "liar"))
				wire.PutAnswer(answer, 0, 1001, "liar")
				_, _ = conn.Write(answer)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func TestADownloadThatIsNotWholeIsAnError(t *testing.T) {
	for _, early := range []bool{false, true} {
		run := mustRun(t, Spec{Kind: Bulk, Download: true, Targets: []netip.AddrPort{liar(t, early)}, Duration: 50 * time.Millisecond, Connections: 1, Unchecked: true})
		want := "received 1000 bytes, the server sent 1001"
		if early {
			want = "closed"
		}
		if text := fmt.Sprint(run.ErrorExamples); run.Failed == 0 || run.Completed > 0 || !strings.Contains(text, want) {
			t.Errorf("%d failed, %d completed, examples %s, want %q", run.Failed, run.Completed, text, want)
		}
	}
}

func TestOnlyBulkIsDownloaded(t *testing.T) {
	err := Spec{Kind: RR, Download: true, Duration: time.Second}.Validate()
	if err == nil || err.Error() != "download is of bulk, and the kind is rr" {
		t.Errorf("error is %v", err)
	}
}

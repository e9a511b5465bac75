package serve

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/traffic/wire"
)

func mustStart(tb testing.TB, options Options) (*Server, string) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.8.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	addr := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	server, err := Start([]Endpoint{{Name: "one", Addr: addr}}, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
	})
	return server, addr.String()
}

func mustDial(tb testing.TB, network, addr string) net.Conn {
	tb.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		tb.Fatal(err)
	}
	return conn
}

func request(length, answer, flags uint32, sequence uint64) []byte {
	b := make([]byte, length)
	wire.Request{Length: length, Answer: answer, Flags: flags, Sequence: sequence}.Put(b)
	return b
}

func mustAnswer(tb testing.TB, conn net.Conn, length int) wire.Answer {
	tb.Helper()
	b := make([]byte, length)
	if _, err := io.ReadFull(conn, b); err != nil {
		tb.Fatal(err)
	}
	a, err := wire.ParseAnswer(b)
	if err != nil || int(a.Length) != length {
		tb.Fatalf("answer is %+v, %v; want one of %d bytes", a, err, length)
	}
	return a
}

func TestRequestsAreAnsweredHoweverTheyAreCut(t *testing.T) {
	server, addr := mustStart(t, Options{})
	conn := mustDial(t, "tcp", addr)
	stream := append(request(100, 2000, 0, 1), append(request(24, 0, 0, 2), request(5000, 300_000, 0, 3)...)...)
	for _, cut := range []int{1, 23, 24, 25, 99, 100, 101, 130, len(stream) - 1} {
		for _, part := range [][]byte{stream[:cut], stream[cut:]} {
			if _, err := conn.Write(part); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Millisecond)
		}
		for i, length := range []int{2000, wire.AnswerHeader + 3, 300_000} {
			if a := mustAnswer(t, conn, length); a.Sequence != uint64(i+1) || string(a.Name) != "one" {
				t.Fatalf("cut at %d: answer %d is %+v", cut, i+1, a)
			}
		}
	}
	if s := server.Stats()["one"]; s.Connections != 1 || s.Requests != 27 || s.First.IsZero() || s.Last.Before(s.First) {
		t.Errorf("stats are %+v", s)
	}
}

func TestHTTPIsServedOnTheSamePort(t *testing.T) {
	_, addr := mustStart(t, Options{})
	for range 3 {
		response, err := http.Get("http://" + addr + "/?bytes=1234")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || len(body) != 1234 || response.Header.Get(BackendHeader) != "one" {
			t.Errorf("%d bytes from %q, %v", len(body), response.Header.Get(BackendHeader), err)
		}
	}
	response, err := http.Post("http://"+addr+"/", "text/plain", strings.NewReader(strings.Repeat("x", 100_000)))
	if err != nil || response.StatusCode != 200 {
		t.Errorf("POST gives %v, %v", response, err)
	}
	conn := mustDial(t, "tcp", addr)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	head, err := io.ReadAll(bufio.NewReader(conn)) // up to the end: it closes
	if err != nil || !bytes.Contains(head, []byte("Connection: close")) {
		t.Errorf("%q, %v", head, err)
	}
}

func TestNonsenseEndsTheConnection(t *testing.T) {
	_, addr := mustStart(t, Options{})
	for _, text := range []string{"HGq1\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", strings.Repeat("x", 2*maxHead)} {
		conn := mustDial(t, "tcp", addr)
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%.10q gets %d bytes", text, n)
		}
	}
}

func TestBulkIsCounted(t *testing.T) {
	server, addr := mustStart(t, Options{})
	conn := mustDial(t, "tcp", addr)
	if _, err := conn.Write(append(request(24, 0, wire.Bulk, 4), make([]byte, 1_000_000)...)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if a := mustAnswer(t, conn, wire.AnswerHeader+3); a.Count != 1_000_000 || a.Sequence != 4 {
		t.Errorf("answer is %+v", a)
	}
	if s := server.Stats()["one"]; s.Bytes != 1_000_000 {
		t.Errorf("stats are %+v", s)
	}
}

func TestDatagramsAreAnsweredAndCounted(t *testing.T) {
	server, addr := mustStart(t, Options{})
	conn := mustDial(t, "udp", addr)
	for range 7 {
		if _, err := conn.Write(request(24, 0, wire.OneWay, 99)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond)
	for flags, want := range map[uint32]uint64{wire.Report: 7, 0: 0} {
		if _, err := conn.Write(request(24, 500, flags, 99)); err != nil {
			t.Fatal(err)
		}
		if a := mustAnswer(t, conn, 500); a.Count != want || a.Sequence != 99 {
			t.Errorf("answer is %+v, want a count of %d", a, want)
		}
	}
	if s := server.Stats()["one"]; s.Datagrams != 7 || s.Requests != 1 {
		t.Errorf("stats are %+v", s)
	}
}

func TestAServerWaitsOutAStall(t *testing.T) {
	server, addr := mustStart(t, Options{})
	conn := mustDial(t, "tcp", addr)
	const stall = 200 * time.Millisecond
	began := time.Now()
	server.Stall(stall)
	if _, err := conn.Write(request(24, 0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	mustAnswer(t, conn, wire.AnswerHeader+3)
	if took := time.Since(began); took < stall {
		t.Errorf("an answer after %s in a stall of %s", took, stall)
	}
}

func TestTwoServersCannotHaveOnePort(t *testing.T) {
	_, addr := mustStart(t, Options{})
	if s, err := Start([]Endpoint{{Name: "two", Addr: netip.MustParseAddrPort(addr)}}, Options{}); err == nil {
		t.Error("the same port was given twice", s.Close())
	}
	if s, err := Start([]Endpoint{{Name: strings.Repeat("x", 64), Addr: netip.MustParseAddrPort("127.0.8.9:1")}}, Options{}); err == nil {
		t.Error("a name of 64 bytes was taken", s.Close())
	}
}

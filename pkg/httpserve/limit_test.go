package httpserve

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

func TestANewConnectionClosesTheOldestOfAllServersOfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &Limit{}
		ports := []chan net.Conn{servePipes(t, hello(), limit), servePipes(t, hello(), limit)}
		var clients []net.Conn
		for i := range maxConnections {
			clients = append(clients, connect(t, ports[i%2]))
		}
		wantOpen(t, clients[0])
		clients[1].Close() // makes room
		synctest.Wait()
		connect(t, ports[1])
		wantOpen(t, clients[0])
		if answer := ask(t, connect(t, ports[1])); !strings.HasSuffix(answer, "hello") {
			t.Errorf("the newest connection got %q", answer)
		}
		wantClosed(t, clients[0])
		wantOpen(t, clients[2])
	})
}

// Close of a TLS connection waits until the client reads an alert. The next accept would wait, too.
func TestTheOldestConnectionIsClosedAtOnceBelowTLS(t *testing.T) {
	some := httptest.NewTLSServer(nil)
	some.Close()
	synctest.Test(t, func(t *testing.T) {
		limit := &Limit{}
		ours, theirs := net.Pipe()
		server := tls.Server(ours, some.TLS)
		go func() {
			// TLS 1.3 sends tickets, which this client does not read either.
			_ = tls.Client(theirs, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).Handshake()
		}()
		if err := server.Handshake(); err != nil {
			t.Fatal(err)
		}
		limit.add(server)
		began := time.Now()
		for range maxConnections {
			limit.add(&net.TCPConn{})
		}
		wantClosed(t, theirs)
		if took := time.Since(began); took > 0 {
			t.Errorf("new connections wait for %v", took)
		}
	})
}

func TestABriefConnectionHasOneRequestAndEndsInTime(t *testing.T) {
	large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(Brief - time.Second)
		_, _ = w.Write(make([]byte, 1<<20))
	})
	const header = "GET / HTTP/1.1\r\nHost: x\r\n"
	for name, c := range map[string]struct {
		handler     http.Handler
		said        string
		reads, ends time.Duration // from when on, until when
		answers     int
	}{
		"says nothing":         {hello(), "", 0, Brief, 0},
		"begins a header":      {hello(), header, 0, Brief, 0},
		"announces a body":     {hello(), header + "Content-Length: 9\r\n\r\n", 0, Brief, 1},
		"does not read":        {large, request, 2 * Brief, 2 * Brief, 0},
		"keeps its connection": {hello(), request, 0, 0, 1},
		"asks twice on one":    {hello(), request + request, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, began := connect(t, servePipes(t, c.handler, &Limit{Lasts: Brief})), time.Now()
				go func() { _, _ = io.WriteString(client, c.said) }()
				time.Sleep(c.reads)
				said, err := io.ReadAll(client)
				if ended := time.Since(began); err != nil || ended != c.ends || strings.Count(string(said), "Connection: close") != c.answers {
					t.Errorf("the connection ends after %v with %d bytes %.200q, %v; want %v and %d answers", ended, len(said), said, err, c.ends, c.answers)
				}
			})
		})
	}
}

func TestALimitWithoutTimeKeepsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := connect(t, servePipes(t, hello(), &Limit{}))
		for range 2 {
			if answer := ask(t, client); !strings.HasSuffix(answer, "hello") {
				t.Errorf("answered %q", answer)
			}
			time.Sleep(10 * Brief)
		}
	})
}

func TestNothingIsLeftOfConnectionsThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &Limit{Lasts: Brief}
		port := servePipes(t, hello(), limit)
		for range 3 * maxConnections {
			connect(t, port)
		}
		connect(t, port).Close()
		time.Sleep(Brief + time.Second)
		synctest.Wait()
		if len(limit.open) > 0 {
			t.Errorf("%d connections count, want none", len(limit.open))
		}
	})
}

// servePipes serves connections in memory until the test ends.
func servePipes(tb testing.TB, handler http.Handler, limit *Limit) chan net.Conn {
	tb.Helper()
	conns, server := make(chan net.Conn), NewServer(handler, limit)
	var all sync.WaitGroup
	all.Go(func() { _ = server.Serve(pipes{conns}) })
	tb.Cleanup(func() { close(conns); all.Wait(); server.Close() })
	return conns
}

// connect returns the client's end once the server has the other one.
func connect(tb testing.TB, port chan net.Conn) net.Conn {
	tb.Helper()
	client, served := net.Pipe()
	port <- served
	synctest.Wait()
	tb.Cleanup(func() { client.Close() })
	return client
}

// ask returns the answer to a request, as far as it has come when the server waits again.
func ask(tb testing.TB, client net.Conn) string {
	tb.Helper()
	if _, err := io.WriteString(client, request); err != nil {
		tb.Fatal(err)
	}
	answer := make([]byte, 1<<10)
	n, err := client.Read(answer)
	if err != nil {
		tb.Fatal(err)
	}
	return string(answer[:n])
}

func wantOpen(tb testing.TB, client net.Conn) {
	tb.Helper()
	if err := look(client); !errors.Is(err, os.ErrDeadlineExceeded) {
		tb.Errorf("an open connection says %v", err)
	}
}

func wantClosed(tb testing.TB, client net.Conn) {
	tb.Helper()
	if err := look(client); !errors.Is(err, io.ErrClosedPipe) {
		tb.Errorf("a closed connection says %v", err)
	}
}

// look returns why there is nothing to read: a deadline cannot be set where the other end is closed.
func look(client net.Conn) error {
	synctest.Wait()
	if err := client.SetReadDeadline(time.Now()); err != nil {
		return err
	}
	_, err := client.Read(make([]byte, 1))
	return errors.Join(err, client.SetReadDeadline(time.Time{}))
}

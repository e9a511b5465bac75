package netio

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mustPair returns a server, and clients that are connected to it.
func mustPair(tb testing.TB, addr string, clients int) (server int, connected []int) {
	tb.Helper()
	server, err := ListenUDP(netip.MustParseAddrPort(addr))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = Close(server) })
	name, err := unix.Getsockname(server)
	if err != nil {
		tb.Fatal(err)
	}
	for range clients {
		fd, err := unix.Socket(Family(AddrPort(name).Addr()), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = Close(fd) })
		if err := unix.Connect(fd, name); err != nil {
			tb.Fatal(err)
		}
		connected = append(connected, fd)
	}
	return server, connected
}

func TestABatchComesBackToWhoSentIt(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		server, clients := mustPair(t, addr, 3)
		out := NewBatch(8, 100)
		defer out.Close()
		for i, fd := range clients {
			for j := range 2 {
				out.SetLength(j, copy(out.Room(j), fmt.Sprintf("client %d datagram %d", i, j)))
			}
			if n, err := out.Send(fd, 2); n != 2 || err != nil {
				t.Fatalf("sent %d, %v", n, err)
			}
		}
		in := NewBatch(8, 100)
		defer in.Close()
		n, err := in.Receive(server)
		if n != 6 || err != nil {
			t.Fatalf("received %d, %v", n, err)
		}
		in.Swap(0, 5) // whatever moves, payload and peer move together
		in.Swap(1, 3)
		for i := range n {
			in.SetLength(i, len(in.Payload(i)))
		}
		if n, err := in.Answer(server, 0, 2); n != 2 || err != nil {
			t.Fatalf("answered %d, %v", n, err)
		}
		if n, err := in.Answer(server, 2, 6); n != 4 || err != nil {
			t.Fatalf("answered %d, %v", n, err)
		}
		for i, fd := range clients {
			got := map[string]bool{}
			buffer := make([]byte, 100)
			for range 2 {
				n, err := unix.Read(fd, buffer)
				if err != nil {
					t.Fatal(err)
				}
				got[string(buffer[:n])] = true
			}
			if !got[fmt.Sprintf("client %d datagram 0", i)] || !got[fmt.Sprintf("client %d datagram 1", i)] {
				t.Errorf("client %d has %v", i, got)
			}
		}
		if _, err := in.Receive(server); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("receive from nobody: %v", err)
		}
	}
}

func TestAPollerWaitsNoLongerThanItIsTold(t *testing.T) {
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	server, clients := mustPair(t, "127.0.0.1:0", 1)
	want := Token{Slot: 7, Generation: -3}
	if err := p.Add(server, unix.EPOLLIN, want); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := p.Wait(3*time.Millisecond, func(e Event) { t.Errorf("event %+v of nothing", e) }); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 3*time.Millisecond {
		t.Errorf("waited %s, want 3 ms", took)
	}
	if _, err := unix.Write(clients[0], []byte("x")); err != nil {
		t.Fatal(err)
	}
	var got []Token
	if err := p.Wait(time.Minute, func(e Event) { got = append(got, e.Token()) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("events are %v, want %v", got, want)
	}
}

package network

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"
)

// held is how many connections one client holds. Each takes two of the files that a process may open.
const held = 3_000

// TestOneAddressHoldsManyConnections has one client hold connections to one backend on
// another node, so that each needs a source port of its own there.
func TestOneAddressHoldsManyConnections(t *testing.T) {
	for _, f := range families {
		t.Run(f.String(), func(t *testing.T) { holdMany(t, f) })
	}
}

// holdMany opens connections by the first node to the pod of the second one, and then has
// each of them carry a few bytes there and back.
func holdMany(t *testing.T, f family) {
	n := newNetwork(t, false)
	n.client.do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("1024 65535"), 0o644)
	})
	n.nodes[0].options = []string{"--flows", strconv.Itoa(5 * held)} // four directions each
	n.startAgents()
	var listener net.Listener
	n.nodes[1].pod.do(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", ":8080")
		return err
	})
	defer listener.Close()
	var clients, servers []net.Conn
	defer func() {
		for _, c := range append(clients, servers...) {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}()
	began := time.Now()
	for i := range held {
		client, err := n.client.dial("tcp", netip.AddrPortFrom(loadBalancer[f], 80))
		if err != nil {
			t.Fatalf("after %d connections: %v", i, err)
		}
		clients = append(clients, client)
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, server)
	}
	t.Logf("%d connections are open after %v", held, time.Since(began).Round(time.Millisecond))
	wantCarried(t, clients, servers)
	wantCarried(t, servers, clients)
}

// wantCarried sends a number by each connection, and looks for it at the other end.
func wantCarried(t *testing.T, from, to []net.Conn) {
	t.Helper()
	number := func(i int) []byte { return []byte(strconv.Itoa(1_000_000 + i)) }
	for i, c := range from {
		if _, err := c.Write(number(i)); err != nil {
			t.Fatalf("connection %d of %d: %v", i, len(from), err)
		}
	}
	for i, c := range to {
		got := make([]byte, len(number(i)))
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, number(i)) {
			t.Fatalf("connection %d of %d carries %q, %v", i, len(from), got, err)
		}
	}
}

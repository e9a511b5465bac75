package network

import (
	"fmt"
	"net"

	"github.com/headgate/headgate/pkg/datapath"
)

// begin returns so many connections, and flows of datagrams after them, that began while all nodes
// carried. A node without a CPU for a second is given up by the others until it answers: then all
// begin again.
func (f *fabric) begin(connections, datagrams int) []net.Conn {
	f.tb.Helper()
	for range 5 {
		eventually(f.tb, "all nodes carry", f.carries)
		conns := f.dialAll(connections, datagrams)
		err := f.carries()
		if err == nil {
			return conns
		}
		f.tb.Log(err)
		for _, conn := range conns {
			conn.Close()
		}
	}
	f.tb.Fatal("nodes give each other up again and again")
	return nil
}

// dialAll returns those of which each has got an answer.
func (f *fabric) dialAll(connections, datagrams int) (all []net.Conn) {
	f.tb.Helper()
	for i := range connections + datagrams {
		protocol, ask := "tcp", who
		if i >= connections {
			protocol, ask = "udp", func(conn net.Conn) (string, error) { return exchange(conn, "hello") }
		}
		conn, err := f.client.dial(protocol, carriedAt[0])
		if err == nil {
			_, err = ask(conn)
		}
		if err != nil {
			f.tb.Fatal(err)
		}
		all = append(all, conn)
	}
	return all
}

// carries returns an error where what begins now would not be carried.
func (f *fabric) carries() error {
	if f.forwarding != "dsr" {
		return nil
	}
	for _, n := range f.nodes {
		if err := usablePeers(n.root, 2); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	return nil
}

// usablePeers returns an error unless so many peers are usable.
func usablePeers(root string, want int) error {
	r, err := datapath.Inspect(root)
	if err != nil {
		return err
	}
	defer r.Close()
	got := 0
	for _, p := range r.Peers() {
		if p.Usable {
			got++
		}
	}
	if got != want {
		return fmt.Errorf("%d peers are usable, want %d", got, want)
	}
	return nil
}

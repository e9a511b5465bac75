package network

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"
)

// asHolder makes this binary hold sockets: each line of its input opens one, and
// "ask" has it ask by all of them, with a line for each answer and a blank one.
//
//	tcp ADDRESS:PORT        a connection
//	udp ADDRESS:PORT        a connected socket
//	datagram ADDRESS:PORT   a socket that is not connected
const asHolder = "HEADGATE_TEST_AS_HOLDER"

func holdHere() {
	var asks []func() (string, error)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if kind, to, ok := strings.Cut(lines.Text(), " "); ok {
			asks = append(asks, open(kind, netip.MustParseAddrPort(to)))
			continue
		}
		for _, ask := range asks {
			said, err := ask()
			if err != nil {
				said = "error: " + err.Error()
			}
			fmt.Println(said)
		}
		fmt.Println()
	}
}

// open returns what asks by a new socket.
func open(kind string, to netip.AddrPort) func() (string, error) {
	var conn net.Conn
	var err error
	if kind == "datagram" {
		var c net.PacketConn
		if c, err = net.ListenPacket("udp", ":0"); err == nil {
			conn = aimed{c.(*net.UDPConn), to}
		}
	} else {
		conn, err = dial(kind, to)
	}
	return func() (string, error) {
		if err != nil {
			return "", err
		}
		return askBy(conn)
	}
}

// askBy asks who is at the other end.
func askBy(conn net.Conn) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if conn.LocalAddr().Network() == "tcp" {
		return who(conn)
	}
	return exchange(conn, "hello")
}

// aimed is a socket that is not connected and talks to one address.
type aimed struct {
	*net.UDPConn
	to netip.AddrPort
}

func (a aimed) Write(b []byte) (int, error) { return a.WriteToUDPAddrPort(b, a.to) }

func (a aimed) Read(b []byte) (int, error) {
	n, from, err := a.ReadFromUDPAddrPort(b)
	if from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port()); err == nil && from != a.to {
		return 0, fmt.Errorf("the answer comes from %s, want %s", from, a.to)
	}
	return n, err
}

// holder is a process on a node whose sockets the agent of the node balances.
type holder struct {
	node    *node
	in      io.WriteCloser
	out     *bufio.Scanner
	sockets []string
}

func (n *node) newHolder() *holder {
	n.tb.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asHolder+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		n.tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.tb.Fatal(err)
	}
	n.cgroup.Adopt(cmd)
	if err := n.Start(cmd); err != nil {
		n.tb.Fatal(err)
	}
	n.tb.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // it has said what there is to say
	})
	return &holder{node: n, in: in, out: bufio.NewScanner(out)}
}

// open opens a socket of a kind.
func (h *holder) open(kind string, to netip.AddrPort) {
	h.sockets = append(h.sockets, kind+" "+to.String())
	fmt.Fprintln(h.in, h.sockets[len(h.sockets)-1])
}

// ask asks by all sockets, and returns who answered by socket.
func (h *holder) ask() map[string]string {
	h.node.tb.Helper()
	fmt.Fprintln(h.in, "ask")
	said := map[string]string{}
	for i, s := range h.sockets {
		if !h.out.Scan() {
			h.node.tb.Fatalf("the process that holds sockets has ended: %v", h.out.Err())
		}
		said[fmt.Sprintf("socket %d, %s", i, s)] = h.out.Text()
	}
	h.out.Scan()
	return said
}

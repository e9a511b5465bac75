package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestAFloodOfSYNsBreaksNothing has a flood from addresses that nobody has, to
// backends on the node and on another one, while 2,000 connections are open and
// others come.
func TestAFloodOfSYNsBreaksNothing(t *testing.T) {
	const entries = 1 << 15
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
	}
	for _, node := range n.nodes {
		node.options = []string{"--flows", strconv.Itoa(entries)}
	}
	n.startAgents()
	conns := n.openEverywhere(t, "tcp", 250)
	said := n.wantAnswers(t, conns, nil)

	f := &flood{pace: 20_000, to: []netip.AddrPort{n.nodes[0].at(0, onNode1), n.nodes[0].at(0, onNode2), n.nodes[1].at(0, onNode2)}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	device := n.packetDevice(t)
	go func() { done <- f.run(ctx, device) }()
	eventually(t, "more flows were half open than the table has entries", func() error {
		if got := n.nodes[0].counter(t, "flow_expired"); got < entries {
			return fmt.Errorf("%d made room", got)
		}
		return nil
	})
	tried, failed := n.comeAndGo(t, 1000)
	n.wantAnswers(t, conns, said)
	stop()
	if err := <-done; err != nil {
		t.Fatalf("flood: %v", err)
	}
	t.Logf("%d SYNs, %.0f a second; of %d new connections %d failed", f.sent.Load(), f.rate(), tried, failed)
	if failed*100 > tried {
		t.Errorf("of %d new connections %d failed", tried, failed)
	}
	for _, node := range n.nodes {
		if got := node.counter(t, "flow_restored"); got > 0 {
			t.Errorf("on %s %d entries of connections that work were lost", node.name, got)
		}
	}
}

// comeAndGo makes new connections, some at a time, by every path, and returns
// how many there were and how many were not answered.
func (n *network) comeAndGo(t *testing.T, count int64) (tried, failed int64) {
	t.Helper()
	var targets []netip.AddrPort
	n.allPaths(func(_ family, _, _ *node, to netip.AddrPort) { targets = append(targets, to) })
	var next, bad atomic.Int64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				i := next.Add(1)
				if i > count {
					return
				}
				if _, err := n.client.ask("tcp", targets[int(i)%len(targets)]); err != nil {
					bad.Add(1)
					t.Logf("a new connection to %s: %v", targets[int(i)%len(targets)], err)
				}
			}
		})
	}
	workers.Wait()
	return count, bad.Load()
}

// flood sends SYNs of IPv4 from ever other addresses and ports.
type flood struct {
	pace int // a second
	to   []netip.AddrPort
	sent atomic.Int64
	took time.Duration
}

func (f *flood) rate() float64 { return float64(f.sent.Load()) / f.took.Seconds() }

// packetDevice is a packet socket of the client, with what its frames begin with.
type packetDevice struct {
	socket int
	link   *unix.SockaddrLinklayer
	macs   []byte
}

// packetDevice opens a packet socket for the way from the client to its gateway.
func (n *network) packetDevice(t *testing.T) *packetDevice {
	t.Helper()
	var own, other netlink.Link
	n.far.do(func() (err error) { other, err = netlink.LinkByName("near"); return err })
	d := &packetDevice{}
	n.client.do(func() (err error) {
		if own, err = netlink.LinkByName("eth0"); err != nil {
			return err
		}
		d.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	t.Cleanup(func() { unix.Close(d.socket) })
	d.link = &unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: own.Attrs().Index}
	d.macs = append(append([]byte{}, other.Attrs().HardwareAddr...), own.Attrs().HardwareAddr...)
	return d
}

// run floods by a device until the context ends.
func (f *flood) run(ctx context.Context, d *packetDevice) error {
	begin := time.Now()
	defer func() { f.took = time.Since(begin) }()
	for i := uint32(0); ctx.Err() == nil; i++ {
		if ahead := time.Duration(i)*time.Second/time.Duration(f.pace) - time.Since(begin); ahead > 2*time.Millisecond {
			time.Sleep(ahead)
		}
		frame := append(d.macs[:12:12], syn(i, f.to[int(i)%len(f.to)])...)
		if err := unix.Sendto(d.socket, frame, 0, d.link); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("send: %w", err)
		}
		f.sent.Add(1)
	}
	return nil
}

// syn is the SYN of a number, from its Ethernet type on. Its source is one of
// the addresses of the client's network, which nobody has.
func syn(number uint32, to netip.AddrPort) []byte {
	const addresses = 200
	p := make([]byte, 2+20+20)
	copy(p, []byte{8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6})
	ip, tcp := p[2:22], p[22:]
	copy(ip[12:], []byte{198, 51, 100, byte(20 + number%addresses)})
	copy(ip[16:], to.Addr().AsSlice())
	binary.BigEndian.PutUint16(ip[10:], ^sum(ip))
	binary.BigEndian.PutUint16(tcp, uint16(1024+number/addresses%60_000))
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	binary.BigEndian.PutUint32(tcp[4:], number*0x9e3779b1)
	copy(tcp[12:], []byte{5 << 4, 2, 0xff, 0xff})
	binary.BigEndian.PutUint16(tcp[16:], ^sum(ip[12:20], []byte{0, 6, 0, 20}, tcp))
	return p
}

// sum is the sum of RFC 1071, of an even number of bytes each.
func sum(parts ...[]byte) uint16 {
	var s uint32
	for _, p := range parts {
		for i := 0; i < len(p); i += 2 {
			s += uint32(binary.BigEndian.Uint16(p[i:]))
		}
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

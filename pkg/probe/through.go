package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/headgate/headgate/pkg/packet"
)

// Where a backend is outside (docs/edge.md) a connection to its own address says nothing of whether it takes
// the outer header off and has the address of the Service. So it gets what clients send, too: a SYN to the
// Service, carried. It answers past the outer header, as it answers clients, and the connection ends there with a
// reset. Nothing in the datapath knows of that: both are written and read here, by raw sockets.

// again is how long an answer to a SYN may take before the next is sent.
const again = time.Second

// ask asks a target once, as ask does, or in the way of clients.
func (c Config) ask(ctx context.Context, t target, interval time.Duration) error {
	if !t.frontend.IsValid() {
		return ask(ctx, t, interval)
	}
	ctx, cancel := context.WithTimeout(ctx, min(interval, patience))
	defer cancel()
	return askThrough(ctx, t, c.CarryPort)
}

// askThrough asks a backend for a connection to the frontend of a target. Carried packets go to a port of UDP, or
// for 0 as IP in IP. The error says why there is none.
func askThrough(ctx context.Context, t target, carryPort uint16) error {
	out, err := dialOuter(ctx, t.at.Addr(), carryPort)
	if err != nil {
		return err
	}
	defer out.Close()
	own := addrOf(out.LocalAddr())
	in, err := net.DialIP(rawNetwork(own, "tcp"), ipAddr(own), ipAddr(t.frontend.Addr()))
	if err != nil {
		return err
	}
	defer in.Close()
	from := netip.AddrPortFrom(own, uint16(firstOwnPort+rand.N(ownPorts)))
	for {
		if _, err := out.Write(packet.TCP(from, t.frontend, packet.SYN, 0)); err != nil {
			return err
		}
		taken, err := awaitAnswer(ctx, in, from, t.frontend)
		switch {
		case taken:
			_, err := out.Write(packet.TCP(from, t.frontend, packet.RST, 1))
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("does not answer what is carried to it for %s: does it take the outer header of --dsr-encapsulation off? docs/edge.md says how", t.frontend)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
	}
}

// Ports that such connections come from: they are of no socket, and end before anybody could use them again.
const (
	firstOwnPort = 32768
	ownPorts     = 28232
)

// awaitAnswer says whether the connection is taken; the error is os.ErrDeadlineExceeded where no answer has come.
func awaitAnswer(ctx context.Context, in *net.IPConn, own, frontend netip.AddrPort) (taken bool, err error) {
	until := time.Now().Add(again)
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		until = end
	}
	if err := in.SetReadDeadline(until); err != nil {
		return false, err
	}
	for b := make([]byte, 128); ; {
		n, _, err := in.ReadFromIP(b)
		if err != nil {
			return false, err
		}
		if n < packet.TCPLen || binary.BigEndian.Uint16(b) != frontend.Port() || binary.BigEndian.Uint16(b[2:]) != own.Port() || binary.BigEndian.Uint32(b[8:]) != 1 {
			continue // of somebody else
		}
		switch flags := b[13]; {
		case flags&packet.RST != 0:
			return false, fmt.Errorf("refuses what is carried to it for %s", frontend)
		case flags&(packet.SYN|packet.ACK) == packet.SYN|packet.ACK:
			return true, nil
		}
	}
}

// dialOuter returns where packets get an outer header to an address.
func dialOuter(ctx context.Context, to netip.Addr, carryPort uint16) (net.Conn, error) {
	if carryPort != 0 {
		return (&net.Dialer{}).DialContext(ctx, "udp", netip.AddrPortFrom(to, carryPort).String())
	}
	return (&net.Dialer{}).DialContext(ctx, rawNetwork(to, map[bool]string{true: "4", false: "41"}[to.Is4()]), to.String())
}

// rawNetwork is the network of raw sockets of a protocol, as package net has it.
func rawNetwork(of netip.Addr, protocol string) string {
	if of.Is4() {
		return "ip4:" + protocol
	}
	return "ip6:" + protocol
}

func ipAddr(a netip.Addr) *net.IPAddr { return &net.IPAddr{IP: a.AsSlice()} }

func addrOf(a net.Addr) (out netip.Addr) {
	switch a := a.(type) {
	case *net.IPAddr:
		out, _ = netip.AddrFromSlice(a.IP)
	case *net.UDPAddr:
		out = a.AddrPort().Addr()
	}
	return out.Unmap()
}

// MayCarry says whether this process may ask backends outside in the way of clients: that takes raw sockets (CAP_NET_RAW).
func MayCarry() bool {
	c, err := net.ListenIP("ip4:tcp", &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err == nil {
		c.Close()
	}
	return err == nil
}

package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// Sizes of linux/inet_diag.h, and states of sockets of net/tcp_states.h.
const (
	diagRequestSize = 56
	diagMessageSize = 72
	stateClose      = 7 // of UDP: bound and not connected
	stateListen     = 10
)

// Servers returns the addresses and ports at which sockets in the network namespace of
// the calling thread take what comes from any client. One at all IPv6 addresses counts
// for IPv4, too.
func Servers() (map[lb.AddrPort]bool, error) {
	out := map[lb.AddrPort]bool{}
	for _, protocol := range []lb.Protocol{lb.TCP, lb.UDP, lb.SCTP} {
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
			messages, err := dump(func() ([][]byte, error) { return diagnose(family, protocol) })
			if protocol != lb.TCP && errors.Is(err, unix.ENOENT) {
				continue // the kernel has no module for that, or not loaded SCTP
			}
			if err != nil {
				return nil, fmt.Errorf("list sockets of %s: %w", protocol, err)
			}
			for _, m := range messages {
				addServer(out, m, protocol)
			}
		}
	}
	return out, nil
}

// diagnose asks for sockets of servers (struct inet_diag_req_v2).
func diagnose(family byte, protocol lb.Protocol) ([][]byte, error) {
	state := stateListen
	if protocol == lb.UDP {
		state = stateClose
	}
	body := make(diagRequest, diagRequestSize)
	body[0], body[1] = family, byte(protocol)
	binary.NativeEndian.PutUint32(body[4:], 1<<state)
	q := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	q.AddData(body)
	return q.Execute(unix.NETLINK_INET_DIAG, 0)
}

// addServer reads the answer for one socket (struct inet_diag_msg).
func addServer(to map[lb.AddrPort]bool, message []byte, protocol lb.Protocol) {
	if len(message) < diagMessageSize {
		return
	}
	addr := netip.AddrFrom4([4]byte(message[8:]))
	if message[0] == unix.AF_INET6 {
		addr = netip.AddrFrom16([16]byte(message[8:])).Unmap()
	}
	at := lb.AddrPort{Addr: addr, Port: binary.BigEndian.Uint16(message[4:]), Protocol: protocol}
	to[at] = true
	if addr == netip.IPv6Unspecified() {
		at.Addr = netip.IPv4Unspecified()
		to[at] = true
	}
}

// diagRequest is the body of a request.
type diagRequest []byte

// Len is that of nl.NetlinkRequestData.
func (r diagRequest) Len() int { return len(r) }

// Serialize is that of nl.NetlinkRequestData.
func (r diagRequest) Serialize() []byte { return r }

package preflight

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Names of processes that may have a port of the agent's.
const (
	kubeProxyName = "kube-proxy"
	headgateName  = "headgate"
)

// listener is a socket that takes TCP connections.
type listener struct {
	at    netip.AddrPort
	inode string
}

// ports says whether the agent would have the addresses that it listens on.
func (r *Report) ports(addresses []Address, procs []process) {
	all, err := listeners()
	if err != nil {
		r.add(notKnown, "%s", err)
		return
	}
	for _, a := range addresses {
		if a.Value == "" {
			continue
		}
		r.port(a, all, procs)
	}
}

func (r *Report) port(a Address, all []listener, procs []process) {
	l, taken, err := a.takenBy(all)
	if err != nil {
		r.add(notKnown, "%s %s: %s", a.Flag, a.Value, err)
		return
	}
	if !taken {
		r.ok("port", "%s (%s) is free", a.Value, a.Flag)
		return
	}
	busy := metricsTaken
	if a.Health {
		busy = portTaken
	}
	owner, seen := ownerOf(procs, "socket:["+l.inode+"]")
	switch {
	case !seen:
		r.add(busy, "%s (%s) is taken by a process that is not seen from here", a.Value, a.Flag)
	case owner.name == headgateName:
		r.ok("port", "%s (%s) is the agent's already: %s", a.Value, a.Flag, owner)
	case owner.name == kubeProxyName:
		r.add(portShared, "%s (%s) is taken by %s", a.Value, a.Flag, owner)
	default:
		r.add(busy, "%s (%s) is taken by %s", a.Value, a.Flag, owner)
	}
}

// takenBy returns who listens so that nobody else can at the same address.
func (a Address) takenBy(all []listener) (listener, bool, error) {
	host, port, err := net.SplitHostPort(a.Value)
	if err != nil {
		return listener{}, false, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return listener{}, false, fmt.Errorf("%s is not a port", port)
	}
	wanted, err := netip.ParseAddr(host)
	if host == "" {
		wanted, err = netip.IPv6Unspecified(), nil
	}
	if err != nil {
		return listener{}, false, err
	}
	for _, l := range all {
		if l.at.Port() == uint16(number) && overlap(l.at.Addr(), wanted) {
			return l, true, nil
		}
	}
	return listener{}, false, nil
}

// overlap says whether sockets at both addresses would get the same connections. The
// unspecified address of either family is taken for that of both: Go listens so.
func overlap(a, b netip.Addr) bool {
	return a == b || a.IsUnspecified() || b.IsUnspecified()
}

// listeners returns the listening TCP sockets of the thread's network namespace.
func listeners() (all []listener, err error) {
	for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // without IPv6
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if l, ok := parseListener(line); ok {
				all = append(all, l)
			}
		}
	}
	return all, nil
}

// parseListener reads a line of proc_net_tcp(5).
func parseListener(line string) (listener, bool) {
	const listen, inode = "0A", 9
	fields := strings.Fields(line)
	if len(fields) <= inode || fields[3] != listen {
		return listener{}, false
	}
	host, port, _ := strings.Cut(fields[1], ":")
	raw, err := hex.DecodeString(host)
	number, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(raw)%4 != 0 {
		return listener{}, false
	}
	for word := raw; len(word) > 0; word = word[4:] { // each in the order of the machine
		binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(word))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return listener{netip.AddrPortFrom(addr.Unmap(), uint16(number)), fields[inode]}, ok
}

package preflight

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Names of processes that may have a port of the agent's.
const (
	KubeProxyName = "kube-proxy"
	HeadgateName  = "headgate"
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

// Port is an address on which a kube-proxy or an agent answers.
type Port struct {
	Address string `json:"address"`
	Holder  string `json:"holder,omitempty"` // with its process ID; "" for nobody
}

// String says who answers.
func (p Port) String() string { return p.Address + " " + cmp.Or(p.Holder, "nobody") }

// Is says whether a program of this name holds the port.
func (p Port) Is(name string) bool { return strings.HasPrefix(p.Holder, name+" ") }

// FindPorts returns who has the wanted addresses, and all others on which a kube-proxy or an
// agent listens, in the network namespace of the calling thread: health-check NodePorts.
func FindPorts(wanted ...string) ([]Port, error) {
	all, err := listeners()
	if err != nil {
		return nil, err
	}
	procs := readProcesses()
	var ports []Port
	seen := map[string]bool{} // inodes
	for _, address := range wanted {
		l, taken, err := (Address{Value: address}).takenBy(all)
		if err != nil {
			return nil, err
		}
		p := Port{Address: address}
		if taken {
			seen[l.inode] = true
			owner, found := ownerOf(procs, l.file())
			if p.Holder = "a process that is not seen from here"; found {
				p.Holder = owner.String()
			}
		}
		ports = append(ports, p)
	}
	ours := slices.DeleteFunc(procs, func(p process) bool {
		return p.name != KubeProxyName && p.name != HeadgateName || !p.isHere()
	})
	for _, l := range all {
		if owner, found := ownerOf(ours, l.file()); found && !seen[l.inode] {
			ports = append(ports, Port{Address: l.at.String(), Holder: owner.String()})
		}
	}
	return ports, nil
}

// file is how a process has the socket open.
func (l listener) file() string { return "socket:[" + l.inode + "]" }

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
	owner, seen := ownerOf(procs, l.file())
	switch {
	case !seen:
		r.add(busy, "%s (%s) is taken by a process that is not seen from here", a.Value, a.Flag)
	case owner.name == HeadgateName:
		r.ok("port", "%s (%s) is the agent's already: %s", a.Value, a.Flag, owner)
	case owner.name == KubeProxyName:
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

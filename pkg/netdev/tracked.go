package netdev

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Translated is a connection of which the kernel's connection tracking translates the
// destination, as rules for Services have it.
type Translated struct {
	Protocol uint8
	From, To netip.AddrPort // as the client has it
	Backend  netip.AddrPort // who answers
}

// TranslatedConnections returns those of the network namespace of the calling thread. A TCP
// connection that both sides have closed is none.
func TranslatedConnections() (all []Translated, err error) {
	list, err := trackedEntries()
	for _, e := range list {
		if e.answer.from.IsValid() && e.inside.to != e.answer.from && !e.ended {
			all = append(all, Translated{Protocol: e.protocol, From: e.inside.from, To: e.inside.to, Backend: e.answer.from})
		}
	}
	return all, err
}

// inside is a connection as the stack has it where a packet comes in.
type inside struct {
	protocol uint8
	from, to netip.AddrPort
}

// answer is who answers a connection, and whom.
type answer struct{ from, to netip.AddrPort }

// tracked are the connections that the kernel tracks.
type tracked map[inside]answer

func trackedConnections() (tracked, error) {
	list, err := trackedEntries()
	known := make(tracked, len(list))
	for _, e := range list {
		known[e.inside] = e.answer
	}
	return known, err
}

// trackedEntry is what connection tracking knows of a connection.
type trackedEntry struct {
	inside
	answer
	ended bool // TCP: both sides have closed it
}

// States of TCP in connection tracking in which a connection has ended, as
// linux/netfilter/nf_conntrack_tcp.h numbers them: FIN of both sides, TIME_WAIT, a reset.
const (
	tcpLastACK = 6
	tcpClose   = 8
)

// trackedEntries returns the entries of the network namespace of the calling thread. Those of a zone are
// of another network, which may have the same addresses and ports: rules keep them apart.
func trackedEntries() ([]trackedEntry, error) {
	return dump(func() (all []trackedEntry, err error) {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				return nil, fmt.Errorf("list the connections that the kernel tracks: %w", err)
			}
			for _, f := range flows {
				if f.Zone != 0 {
					continue
				}
				var e trackedEntry
				e.protocol = f.Forward.Protocol
				e.inside.from, e.inside.to = trackedEnds(f.Forward)
				e.answer.from, e.answer.to = trackedEnds(f.Reverse)
				tcp, isTCP := f.ProtoInfo.(*netlink.ProtoInfoTCP)
				e.ended = isTCP && tcp.State >= tcpLastACK && tcp.State <= tcpClose
				all = append(all, e)
			}
		}
		return all, nil
	})
}

func trackedEnds(t netlink.IPTuple) (src, dst netip.AddrPort) {
	from, _ := netip.AddrFromSlice(t.SrcIP)
	to, _ := netip.AddrFromSlice(t.DstIP)
	return netip.AddrPortFrom(from.Unmap(), t.SrcPort), netip.AddrPortFrom(to.Unmap(), t.DstPort)
}

// outside returns whom the backend of a connection answers, which is not the client where
// rules translate that.
func (t tracked) outside(c Connection) netip.AddrPort {
	if c.Outside.IsValid() {
		return c.Outside
	}
	if a, ok := t[inside{c.Protocol, c.Inside, c.Backend}]; ok {
		return a.to
	}
	return c.Inside
}

// translates says whether the kernel sends a connection to its backend already. As whom, it
// alone knows where that is left to the stack.
func (t tracked) translates(c Connection) bool {
	a, ok := t[inside{c.Protocol, c.From, c.To}]
	return ok && a.from == c.Backend && (a.to == c.Outside || !c.Outside.IsValid())
}

// hasBegunAnew says whether the kernel's rules have sent a client elsewhere that comes again by
// the port of a connection which a side has closed.
func (t tracked) hasBegunAnew(c Connection) bool {
	a, ok := t[inside{c.Protocol, c.From, c.To}]
	return ok && c.TCP == TCPClosing && a.from.IsValid() && a.from != c.To
}

// isJustAs says whether the kernel would translate a connection as it is translated now.
func (t tracked) isJustAs(c Connection) bool {
	return t[inside{c.Protocol, c.From, c.To}] == answer{c.Backend, t.outside(c)}
}

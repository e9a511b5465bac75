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
func TranslatedConnections() ([]Translated, error) {
	return dump(func() (all []Translated, err error) {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				return nil, fmt.Errorf("list the connections that the kernel tracks: %w", err)
			}
			for _, f := range flows {
				if t, ok := translated(f); ok {
					all = append(all, t)
				}
			}
		}
		return all, nil
	})
}

// States of TCP in connection tracking in which a connection has ended, as
// linux/netfilter/nf_conntrack_tcp.h numbers them: FIN of both sides, TIME_WAIT, a reset.
const (
	tcpLastACK = 6
	tcpClose   = 8
)

func translated(f *netlink.ConntrackFlow) (t Translated, ok bool) {
	if tcp, isTCP := f.ProtoInfo.(*netlink.ProtoInfoTCP); isTCP && tcp.State >= tcpLastACK && tcp.State <= tcpClose {
		return t, false
	}
	from, fromOK := netip.AddrFromSlice(f.Forward.SrcIP)
	to, toOK := netip.AddrFromSlice(f.Forward.DstIP)
	backend, backendOK := netip.AddrFromSlice(f.Reverse.SrcIP)
	t = Translated{
		Protocol: f.Forward.Protocol,
		From:     netip.AddrPortFrom(from.Unmap(), f.Forward.SrcPort),
		To:       netip.AddrPortFrom(to.Unmap(), f.Forward.DstPort),
		Backend:  netip.AddrPortFrom(backend.Unmap(), f.Reverse.SrcPort),
	}
	return t, fromOK && toOK && backendOK && t.To != t.Backend
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
	type entry struct {
		inside
		answer
	}
	list, err := dump(func() (all []entry, err error) {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				return nil, fmt.Errorf("list the connections that the kernel tracks: %w", err)
			}
			for _, f := range flows {
				var e entry
				e.protocol = f.Forward.Protocol
				e.inside.from, e.inside.to = trackedEnds(f.Forward)
				e.answer.from, e.answer.to = trackedEnds(f.Reverse)
				all = append(all, e)
			}
		}
		return all, nil
	})
	known := make(tracked, len(list))
	for _, e := range list {
		known[e.inside] = e.answer
	}
	return known, err
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

// isJustAs says whether the kernel would translate a connection as it is translated now.
func (t tracked) isJustAs(c Connection) bool {
	return t[inside{c.Protocol, c.From, c.To}] == answer{c.Backend, t.outside(c)}
}

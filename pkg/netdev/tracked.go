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

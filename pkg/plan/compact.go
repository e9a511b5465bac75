package plan

import (
	"net/netip"

	"github.com/headgate/headgate/pkg/lb"
)

// compact is an lb.AddrPort in 20 bytes in place of 32, and without a pointer, so that the collector
// does not look into what holds many.
type compact struct {
	addr     [16]byte // IPv4 as ::ffff:a.b.c.d
	port     uint16
	protocol lb.Protocol
}

func compacted(a lb.AddrPort) compact { return compact{a.Addr.As16(), a.Port, a.Protocol} }

func (c compact) addrPort() lb.AddrPort {
	return lb.AddrPort{Addr: netip.AddrFrom16(c.addr).Unmap(), Port: c.port, Protocol: c.protocol}
}

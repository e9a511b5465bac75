package netdev

import (
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of linux/netfilter/nfnetlink_conntrack.h and nf_conntrack_common.h that the library lacks.
const (
	ctaNATSrc, ctaNATDst          = 6, 13
	ctaNATV4Min, ctaNATV4Max      = 1, 2
	ctaNATV6Min, ctaNATV6Max      = 4, 5
	ctaNATProto                   = 3
	ctaPortMin, ctaPortMax        = 1, 2
	statusSeenReplyAssured        = 1<<1 | 1<<2 | 1<<3 // and confirmed
	tcpClosed                byte = 1 << 2             // by one of both: a SYN is a new connection
	tcpLiberal               byte = 1 << 3             // numbers out of the window are no fault: nobody has followed them
)

// How long a tracked connection may be silent, in seconds: as kube-proxy has it for open
// connections of TCP, and as the kernel for others.
const (
	idleOpen  = 24 * 60 * 60
	idleOther = 120
)

// ctMessage is one to connection tracking, of the family of a connection.
func ctMessage(c Connection, kind, flags int, attrs ...nl.NetlinkRequestData) *nl.NetlinkRequest {
	q := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	family := uint8(unix.AF_INET6)
	if c.From.Addr().Is4() {
		family = unix.AF_INET
	}
	q.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	for _, a := range attrs {
		q.AddData(a)
	}
	return q
}

// ctEntry is what the kernel is to know of a connection. It says both ends, also one that
// stays as it is: the kernel would choose another port for it where a packet has made an entry
// of its own just now, in place of refusing this one.
func ctEntry(c Connection) []nl.NetlinkRequestData {
	timeout := uint32(idleOther)
	all := []nl.NetlinkRequestData{
		ctTuple(nl.CTA_TUPLE_ORIG, c.Protocol, c.From, c.To), ctTuple(nl.CTA_TUPLE_REPLY, c.Protocol, c.To, c.From),
		nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(statusSeenReplyAssured)),
		ctTranslation(ctaNATDst, c.Backend), ctTranslation(ctaNATSrc, c.Outside),
	}
	if c.Protocol == unix.IPPROTO_TCP {
		if c.TCP == TCPOpen {
			timeout = idleOpen
		}
		info := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_PROTOINFO, nil)
		tcp := info.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_PROTOINFO_TCP, nil)
		tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_STATE, []byte{byte(c.TCP)})
		flags := tcpLiberal
		if c.TCP == TCPClosing {
			flags |= tcpClosed
		}
		tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, []byte{flags, flags})
		tcp.AddRtAttr(nl.CTA_PROTOINFO_TCP_FLAGS_REPLY, []byte{flags, flags})
		all = append(all, info)
	}
	return append(all, nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(timeout)))
}

func ctTuple(kind int, protocol uint8, src, dst netip.AddrPort) *nl.RtAttr {
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|kind, nil)
	ip := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil)
	srcKind, dstKind := nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	if src.Addr().Is4() {
		srcKind, dstKind = nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	}
	ip.AddRtAttr(srcKind, src.Addr().AsSlice())
	ip.AddRtAttr(dstKind, dst.Addr().AsSlice())
	ports := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	ports.AddRtAttr(nl.CTA_PROTO_NUM, []byte{protocol})
	ports.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(src.Port()))
	ports.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(dst.Port()))
	return tuple
}

// ctTranslation says what becomes of one end.
func ctTranslation(kind int, to netip.AddrPort) *nl.RtAttr {
	nat := nl.NewRtAttr(unix.NLA_F_NESTED|kind, nil)
	least, most := ctaNATV6Min, ctaNATV6Max
	if to.Addr().Is4() {
		least, most = ctaNATV4Min, ctaNATV4Max
	}
	nat.AddRtAttr(least, to.Addr().AsSlice())
	nat.AddRtAttr(most, to.Addr().AsSlice())
	ports := nat.AddRtAttr(unix.NLA_F_NESTED|ctaNATProto, nil)
	ports.AddRtAttr(ctaPortMin, nl.BEUint16Attr(to.Port()))
	ports.AddRtAttr(ctaPortMax, nl.BEUint16Attr(to.Port()))
	return nat
}

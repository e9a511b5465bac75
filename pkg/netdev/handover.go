package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Connection is one that somebody translates before and after the kernel's stack, so that
// connection tracking does not know what its client has asked for.
type Connection struct {
	Protocol uint8
	From, To netip.AddrPort // as the client has it
	Inside   netip.AddrPort // the client, as the stack has it
	Backend  netip.AddrPort
	Outside  netip.AddrPort // the client, as the backend has it; not valid where that is left to the stack
	TCP      TCPState       // of TCP
}

// TCPState is how far a connection is, as connection tracking numbers it.
type TCPState byte

// The states that are handed over. Whoever has closed may come again by the same port.
const (
	TCPOpening TCPState = 2 // SYN_RECV: not both sides have shown that they are there
	TCPOpen    TCPState = 3 // ESTABLISHED
	TCPClosing TCPState = 7 // TIME_WAIT: a side has closed it
)

// ErrNoTranslation says that no rules of the node translate addresses, so that the kernel
// goes on with no translation.
var ErrNoTranslation = errors.New("the kernel translates no addresses: there is no chain of type nat")

// trackLoose says whether connection tracking takes packets from amid a TCP connection for a new one.
const trackLoose = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"

// looseBefore is the name of a symbolic link whose target is what trackLoose was.
const looseBefore = "nf_conntrack_tcp_loose"

// TrackFromSYN has connection tracking take only a SYN for a new TCP connection, until
// TrackAsBefore. Else a packet that is translated before an entry is there, and is tracked after,
// makes one of its own with another source port, and its connection is reset. Whoever is killed
// meanwhile leaves a note in dir, which should not outlive the kernel, as the setting does not.
// Where either cannot be made, all stays as it is.
func TrackFromSYN(dir string) {
	before, err := os.ReadFile(trackLoose)
	value, note := strings.TrimSpace(string(before)), filepath.Join(dir, looseBefore)
	if err != nil || value == "0" {
		return // by somebody who was killed, perhaps: then the note is there
	}
	_ = os.Remove(note) // somebody has set it since
	if os.Symlink(value, note) == nil && os.WriteFile(trackLoose, []byte("0"), 0) != nil {
		_ = os.Remove(note) // else a removal would fail at taking back what it did not do
	}
}

// TrackAsBefore takes back TrackFromSYN, also that of somebody who was killed.
func TrackAsBefore(dir string) error {
	note := filepath.Join(dir, looseBefore)
	before, err := os.Readlink(note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(trackLoose, []byte(before), 0)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it goes with connection tracking, and comes as it was at first
		return fmt.Errorf("set %s as it was: %w", trackLoose, err)
	}
	return os.Remove(note)
}

// HandOver has the kernel's connection tracking go on with connections, as if its rules had
// translated them. It returns those that it did not take, which may be tried again: a packet
// that came just then has made an entry of its own.
func HandOver(all []Connection) (left []Connection, err error) {
	if translates, err := hasNAT(); err != nil || !translates {
		return all, errors.Join(err, ErrNoTranslation)
	}
	answered, err := trackedSources()
	if err != nil {
		return all, err
	}
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return all, err
	}
	defer s.Close()
	if err := s.SetReceiveTimeout(&unix.Timeval{Sec: 5}); err != nil { // the kernel answers at once
		return all, err
	}
	const atOnce = 64 // so that the answers find room in the socket
	for from := 0; from < len(all); from += atOnce {
		some := all[from:min(from+atOnce, len(all))]
		refused, why := handOverSome(s, some, answered)
		left, err = append(left, refused...), errors.Join(err, why)
	}
	return left, err
}

func hasNAT() (bool, error) {
	chains, err := Chains()
	for _, c := range chains {
		if c.NAT && c.Hooked {
			return true, nil
		}
	}
	return false, err
}

// inside is a connection as the stack has it.
type inside struct {
	protocol uint8
	from, to netip.AddrPort
}

// trackedSources returns whom the backend of each tracked connection answers, which is not
// the client where rules translate that.
func trackedSources() (map[inside]netip.AddrPort, error) {
	type entry struct {
		inside
		answered netip.AddrPort
	}
	list, err := dump(func() (all []entry, err error) {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			if err != nil {
				return nil, fmt.Errorf("list the connections that the kernel tracks: %w", err)
			}
			for _, f := range flows {
				from, to := trackedEnds(f.Forward)
				_, answered := trackedEnds(f.Reverse)
				all = append(all, entry{inside{f.Forward.Protocol, from, to}, answered})
			}
		}
		return all, nil
	})
	tracked := make(map[inside]netip.AddrPort, len(list))
	for _, e := range list {
		tracked[e.inside] = e.answered
	}
	return tracked, err
}

func trackedEnds(t netlink.IPTuple) (src, dst netip.AddrPort) {
	from, _ := netip.AddrFromSlice(t.SrcIP)
	to, _ := netip.AddrFromSlice(t.DstIP)
	return netip.AddrPortFrom(from.Unmap(), t.SrcPort), netip.AddrPortFrom(to.Unmap(), t.DstPort)
}

// handOverSome puts an entry that translates in the place of each that does not.
func handOverSome(s *nl.NetlinkSocket, some []Connection, answered map[inside]netip.AddrPort) (left []Connection, err error) {
	var batch []byte
	added, awaited := map[uint32]Connection{}, map[uint32]bool{} // by the number of the message
	for _, c := range some {
		outside := c
		if to, ok := answered[inside{c.Protocol, c.Inside, c.Backend}]; ok && !c.Outside.IsValid() {
			outside.Outside = to
		} else if !c.Outside.IsValid() {
			outside.Outside = c.Inside
		}
		forget := ctMessage(c, nl.IPCTNL_MSG_CT_DELETE, 0, ctTuple(nl.CTA_TUPLE_ORIG, c.Protocol, c.Inside, c.Backend))
		add := ctMessage(c, nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_CREATE|unix.NLM_F_EXCL, ctEntry(outside)...)
		added[add.Seq], awaited[forget.Seq], awaited[add.Seq] = c, true, true
		batch = append(append(batch, forget.Serialize()...), add.Serialize()...)
	}
	if err := unix.Sendto(s.GetFd(), batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return some, err
	}
	return refusedOf(s.Receive, added, awaited)
}

// refusedOf waits for the answers to messages, and returns the connections that were to be added
// and are not, as far as is known.
func refusedOf(receive func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error), added map[uint32]Connection, awaited map[uint32]bool) (left []Connection, err error) {
	for len(awaited) > 0 {
		answers, _, receiveErr := receive()
		if receiveErr != nil {
			for message := range awaited {
				if c, isAdded := added[message]; isAdded {
					left = append(left, c)
				}
			}
			return left, errors.Join(err, receiveErr)
		}
		for _, a := range answers {
			if a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 || !awaited[a.Header.Seq] {
				continue
			}
			delete(awaited, a.Header.Seq)
			why := unix.Errno(-int32(binary.NativeEndian.Uint32(a.Data)))
			c, isAdded := added[a.Header.Seq]
			if !isAdded || why == 0 {
				continue // nothing may have been there to be forgotten
			}
			left = append(left, c)
			if why != unix.EEXIST {
				err = fmt.Errorf("have the kernel track the connection from %s to %s: %w", c.From, c.To, why)
			}
		}
	}
	return left, err
}

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
	q := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags|unix.NLM_F_ACK)
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

package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// diagSocket is struct inet_diag_msg: what a dump says of a socket, before its attributes.
type diagSocket struct {
	Family, State, Timer, Retrans uint8
	LocalPort, PeerPort           uint16 // network order, as the next two
	Local, Peer                   [4]uint32
	Device                        uint32
	Cookie                        [2]uint32 // low word first
	_                             [5]uint32 // expires, queues, user, inode
}

// diagCgroup is INET_DIAG_CGROUP_ID, an attribute of eight bytes.
const diagCgroup = 21

// States of sockets with a peer, as linux/tcp_states.h numbers them. A connected datagram
// socket is established, too.
const statesWithPeer = 1<<1 | 1<<2 | 1<<8 // ESTABLISHED, SYN_SENT, CLOSE_WAIT

// peerSocket is a socket that talks to just one peer.
type peerSocket struct {
	headgateNamedSocket
	cgroup uint64 // ID of that of the process that made it
}

func (s *peerSocket) local() netip.AddrPort { return s.end(&s.Local, s.LocalPort) }
func (s *peerSocket) peer() netip.AddrPort  { return s.end(&s.Peer, s.PeerPort) }

func (s *peerSocket) end(words *[4]uint32, port uint16) netip.AddrPort {
	raw := *(*[16]byte)(unsafe.Pointer(words))
	addr := netip.AddrFrom16(raw).Unmap()
	if s.Family == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(raw[:4]))
	}
	var order [2]byte
	binary.NativeEndian.PutUint16(order[:], port)
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(order[:]))
}

// connected returns the sockets of a protocol, in the network namespace that the diag is of,
// that have a peer.
func (d *diag) connected(protocol uint8) (all []peerSocket, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		r := diagRequest{Family: family, Protocol: protocol, States: statesWithPeer}
		err := d.list(sockDiagByFamily, unix.NLM_F_DUMP, r, func(messages []byte) error {
			found, err := parseSockets(messages, protocol)
			all = append(all, found...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("ask INET_DIAG of protocol %d: %w: load the modules tcp_diag and udp_diag", protocol, err)
		}
	}
	return all, nil
}

// parseSockets reads the sockets in a part of a dump.
func parseSockets(messages []byte, protocol uint8) (all []peerSocket, err error) {
	const begin, size = unix.SizeofNlMsghdr, int(unsafe.Sizeof(diagSocket{}))
	for len(messages) >= begin {
		length := int(binary.NativeEndian.Uint32(messages))
		if length < begin || length > len(messages) {
			return nil, fmt.Errorf("an answer of %d bytes: %w", length, unix.EBADMSG)
		}
		if kind := binary.NativeEndian.Uint16(messages[4:]); kind == sockDiagByFamily {
			if length < begin+size {
				return nil, fmt.Errorf("a socket of %d bytes: %w", length, unix.EBADMSG)
			}
			m := *(*diagSocket)(unsafe.Pointer(unsafe.SliceData(messages[begin : begin+size])))
			all = append(all, peerSocket{cgroup: cgroupOf(messages[begin+size : length]), headgateNamedSocket: headgateNamedSocket{
				Cookie: uint64(m.Cookie[1])<<32 | uint64(m.Cookie[0]), Local: m.Local, Peer: m.Peer, Device: m.Device,
				LocalPort: m.LocalPort, PeerPort: m.PeerPort, Family: m.Family, Protocol: protocol,
			}})
		}
		messages = messages[min(len(messages), (length+3)&^3):]
	}
	return all, nil
}

// cgroupOf returns the cgroup among the attributes of a socket, 0 for none.
func cgroupOf(attributes []byte) uint64 {
	const begin = unix.SizeofNlAttr
	for len(attributes) >= begin {
		length := int(binary.NativeEndian.Uint16(attributes))
		if length < begin || length > len(attributes) {
			return 0
		}
		if binary.NativeEndian.Uint16(attributes[2:]) == diagCgroup && length == begin+8 {
			return binary.NativeEndian.Uint64(attributes[begin:])
		}
		attributes = attributes[min(len(attributes), (length+3)&^3):]
	}
	return 0
}

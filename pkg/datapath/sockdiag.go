package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/sock_diag.h and linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	sockDestroy      = 21
)

// diagRequest is struct inet_diag_req_v2: what SOCK_DESTROY is asked, and what a
// dump is.
type diagRequest struct {
	Family    uint8
	Protocol  uint8
	Ext       uint8
	Pad       uint8
	States    uint32 // a bit for each that is wanted
	LocalPort uint16 // network order, as the next three
	PeerPort  uint16
	Local     [4]uint32
	Peer      [4]uint32
	Device    uint32
	Cookie    [2]uint32 // low word first
}

// diagMessage is a request with its header.
type diagMessage struct {
	unix.NlMsghdr
	diagRequest
}

// destroyNamed reads the sockets that an iterator names, and has the kernel
// destroy them: it does so only while address, ports and cookie are of one
// socket. It works in the network namespace of the thread.
func destroyNamed(named io.Reader) error {
	var sockets []headgateNamedSocket
	var one headgateNamedSocket
	err := eachRecord(named, bytesOf(&one), func() error {
		sockets = append(sockets, one)
		return nil
	})
	if err != nil || len(sockets) == 0 {
		return err
	}
	d, err := openDiag()
	if err != nil {
		return err
	}
	defer d.close()
	var errs []error
	for _, s := range sockets {
		errs = append(errs, d.destroy(&s))
	}
	return errors.Join(errs...)
}

// diag is a netlink socket for INET_DIAG.
type diag struct {
	fd     int
	loaded map[uint8]error // by protocol: whether the kernel can be asked
}

func openDiag() (*diag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open a socket for INET_DIAG: %w", err)
	}
	// The kernel answers before it returns from the request. This is in case it
	// does not.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open a socket for INET_DIAG: %w", err)
	}
	return &diag{fd: fd, loaded: map[uint8]error{}}, nil
}

func (d *diag) close() { unix.Close(d.fd) }

// destroy destroys a socket. One that is gone, or whose place another has taken,
// is no error.
func (d *diag) destroy(s *headgateNamedSocket) error {
	if err := d.load(s); err != nil {
		return err
	}
	err := d.ask(sockDestroy, unix.NLM_F_ACK, diagRequest{
		Family: s.Family, Protocol: s.Protocol, States: ^uint32(0),
		LocalPort: s.LocalPort, PeerPort: s.PeerPort, Local: s.Local, Peer: s.Peer, Device: s.Device,
		Cookie: [2]uint32{uint32(s.Cookie), uint32(s.Cookie >> 32)},
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESTALE):
		return nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return ErrNoDestroy
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("destroy a socket through INET_DIAG: %w: the agent needs CAP_NET_ADMIN for it", err)
	case err != nil:
		return fmt.Errorf("destroy a socket through INET_DIAG: %w", err)
	}
	return nil
}

// load has the kernel load what answers for a protocol: without, it says of every
// socket that there is none. A dump of no state does, and costs nothing.
func (d *diag) load(s *headgateNamedSocket) error {
	if err, asked := d.loaded[s.Protocol]; asked {
		return err
	}
	err := d.ask(sockDiagByFamily, unix.NLM_F_DUMP, diagRequest{Family: s.Family, Protocol: s.Protocol})
	if err != nil {
		err = fmt.Errorf("ask INET_DIAG of protocol %d: %w: load the modules tcp_diag and udp_diag", s.Protocol, err)
	}
	d.loaded[s.Protocol] = err
	return err
}

// ask sends a request and returns the kernel's error.
func (d *diag) ask(kind, flags uint16, r diagRequest) error {
	return d.list(kind, flags, r, func([]byte) error { return nil })
}

// list sends a request, calls do with each batch of messages that answers it, and returns
// the kernel's error.
func (d *diag) list(kind, flags uint16, r diagRequest, do func(messages []byte) error) error {
	m := diagMessage{unix.NlMsghdr{Type: kind, Flags: unix.NLM_F_REQUEST | flags}, r}
	m.Len = uint32(unsafe.Sizeof(m))
	request := unsafe.Slice((*byte)(unsafe.Pointer(&m)), m.Len)
	if err := interrupted(func() error { return unix.Sendto(d.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) }); err != nil {
		return err
	}
	buf := make([]byte, 64<<10) // as much as the kernel says at a time, and more
	for {
		var n int
		if err := interrupted(func() (err error) { n, _, err = unix.Recvfrom(d.fd, buf, 0); return err }); err != nil {
			return err
		}
		if err := do(buf[:n]); err != nil {
			return err
		}
		if done, err := diagAnswer(buf[:n]); done {
			return err
		}
	}
}

// diagAnswer says whether messages end an answer, and with which error.
func diagAnswer(messages []byte) (done bool, err error) {
	for len(messages) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(messages))
		if size < unix.SizeofNlMsghdr || size > len(messages) {
			return true, fmt.Errorf("an answer of %d bytes: %w", size, unix.EBADMSG)
		}
		switch kind := binary.NativeEndian.Uint16(messages[4:]); kind {
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			if size < unix.SizeofNlMsghdr+4 {
				return true, nil
			}
			if code := int32(binary.NativeEndian.Uint32(messages[unix.SizeofNlMsghdr:])); code < 0 {
				return true, unix.Errno(-code)
			}
			return true, nil
		}
		messages = messages[min(len(messages), (size+3)&^3):]
	}
	return false, nil
}

// interrupted calls a system call until no signal comes between.
func interrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

package datapath

import (
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// broken is the program that names open connected UDP sockets whose backend has left its
// Service, or that can have their first one. Some of these are older than their frontend and have no entry.
var broken = map[string]string{"list_broken_udp": ""}

// marker is the program that marks connected UDP sockets whose backend has left: those that lose theirs only
// later are not destroyed.
var marker = map[string]string{"mark_broken_udp": ""}

// reconnectAddress is RECONNECT_ADDRESS of bpf/sock/reconnect.h.
var reconnectAddress = [4]byte{255, 255, 255, 255}

// udpLosses says whether there may be broken UDP sockets after these losses, where none stands
// for all, and whether some may have no entry, since a frontend has got its first backend.
func udpLosses(losses []plan.Loss) (some, first bool) {
	some, first = len(losses) == 0, len(losses) == 0
	for _, l := range losses {
		some = some || l.Backend.Protocol == lb.UDP
		first = first || l.Backend == l.Frontend
	}
	return some, first
}

// reconnectPasses is how often the open files are gone through at most, while sockets have moved to other files meanwhile.
const reconnectPasses = 3

// markHere marks sockets in the network namespace of the thread.
func (d *Datapath) markHere() error {
	t := &d.teller
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mark == nil {
		mark, err := d.newIterators(marker, nil)
		if err != nil {
			return err
		}
		t.mark = mark
	}
	return runIterators(t.mark, drained)
}

// reconnect has the broken UDP sockets of all processes connect again. Those that it leaves,
// since no process of its view has them open, are told with the others. It says whether the kernel
// refused one. After that, it has those that the kernel refused give up their peer: some of their datagrams
// would go elsewhere.
func (d *Datapath) reconnect(giveUp bool) (refused bool, err error) {
	t := &d.teller
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil {
		broken, err := d.newIterators(broken, nil)
		if err != nil {
			return false, err
		}
		t.broken = broken
	}
	for range reconnectPasses {
		p := reconnectPass{giveUp: giveUp}
		err = runIterators(t.broken, p.reconnectNamed)
		refused = refused || p.refused
		if err != nil || !p.gone {
			break
		}
	}
	return refused, err
}

// reconnectPass is what became of the sockets that the iterator named.
type reconnectPass struct {
	giveUp  bool // only those that the kernel has refused, which give up their peer
	gone    bool // one was not where it was named
	refused bool // the kernel refused one
}

// reconnectNamed reads the sockets that the iterator names, and has each connect again, once if
// several processes have it. The error is the first one.
func (p *reconnectPass) reconnectNamed(named io.Reader) (failed error) {
	var f headgateSocketFile
	done := map[uint64]bool{}
	err := eachRecord(named, bytesOf(&f), func() error {
		if there, seen := done[f.Cookie]; seen && there {
			return nil
		}
		if p.giveUp && f.Refused == 0 {
			return nil
		}
		there, refused, err := f.reconnect(p.giveUp)
		p.refused = p.refused || refused
		if err != nil && failed == nil {
			failed = fmt.Errorf("connect the UDP socket %d of process %d to another backend: %w", f.Fd, f.Process, err)
		}
		done[f.Cookie] = there || err != nil
		return nil
	})
	for _, there := range done {
		p.gone = p.gone || !there
	}
	return errors.Join(failed, err)
}

// reconnect has a socket connect again, unless its process has connected it elsewhere, or give up its peer. It says
// whether the socket is there still, and whether the kernel refused to connect it.
func (f *headgateSocketFile) reconnect(giveUp bool) (there, refused bool, err error) {
	process, err := unix.PidfdOpen(int(f.Process), 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, int(f.Fd), 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EBADF) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil || cookie != f.Cookie {
		return false, false, nil
	}
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return false, false, err
	}
	var to unix.Sockaddr = &unix.SockaddrInet4{Addr: reconnectAddress}
	if family == unix.AF_INET6 {
		mapped := unix.SockaddrInet6{Addr: [16]byte{10: 0xff, 11: 0xff}}
		copy(mapped.Addr[12:], reconnectAddress[:])
		to = &mapped
	}
	if giveUp {
		return true, false, giveUpPeer(fd)
	}
	err = unix.Connect(fd, to)
	switch _, lost := unix.Getpeername(fd); {
	case errors.Is(err, unix.EACCES), err == nil && lost != nil: // port 0 is no peer
		return true, false, giveUpPeer(fd) // somebody has detached the programs: the kernel has looked at the address itself
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EADDRNOTAVAIL):
		return true, false, nil // by the programs: the process has connected it elsewhere, or another socket has the tuple
	default:
		return true, err != nil, nil // there is no route: the socket is told next
	}
}

// giveUpPeer disconnects a datagram socket: the next call of its process fails with EDESTADDRREQ.
func giveUpPeer(fd int) error {
	any := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&any)), unsafe.Sizeof(any)); errno != 0 {
		return errno
	}
	return nil
}

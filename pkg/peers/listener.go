package peers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// listener is two sockets of one address. The kernel gives datagrams with a digest of the cluster's key
// to the second one, and all others to the first one: a flood of these fills its queue alone. Processes of
// the same user can join them.
type listener [2]*net.UDPConn

// listenFor opens both, by the digest that proves the key.
func listenFor(at netip.AddrPort, proof Digest) (*listener, error) {
	reuse := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	var l listener
	for i := range l {
		conn, err := reuse.ListenPacket(context.Background(), "udp", at.String())
		if err != nil {
			l.close()
			return nil, err
		}
		l[i] = conn.(*net.UDPConn)
	}
	raw, err := l[0].SyscallConn()
	if err == nil {
		err = control(raw, func(fd int) error { return choose(fd, proof) })
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("keep apart questions of nodes: %w", err)
	}
	return &l, nil
}

func (l *listener) close() {
	for _, conn := range l {
		if conn != nil {
			conn.Close()
		}
	}
}

// choose has the kernel choose between the sockets of a group by the first four bytes of a digest. The
// program sees the payload of UDP, and returns the number of a socket.
func choose(fd int, proof Digest) error {
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(messageLen), Jf: 2},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(messageLen - len(proof))},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: binary.BigEndian.Uint32(proof[:]), Jt: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

func control(raw syscall.RawConn, do func(fd int) error) (err error) {
	failed := raw.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(failed, err)
}

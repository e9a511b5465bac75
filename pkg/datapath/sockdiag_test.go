package datapath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// message is a netlink message with a body.
func message(kind uint16, body ...byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(body))
	binary.NativeEndian.PutUint32(b, uint32(unix.SizeofNlMsghdr+len(body)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	return append(b, body...)
}

func code(errno int32) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(-errno)) }

func TestAnAnswerOfINETDIAGIsItsError(t *testing.T) {
	for _, tc := range []struct {
		name string
		said []byte
		done bool
		want error
	}{
		{"acknowledged", message(unix.NLMSG_ERROR, code(0)...), true, nil},
		{"refused", message(unix.NLMSG_ERROR, code(int32(unix.EOPNOTSUPP))...), true, unix.EOPNOTSUPP},
		{"the end of a dump", message(unix.NLMSG_DONE, code(0)...), true, nil},
		{"the end of a dump that failed", message(unix.NLMSG_DONE, code(int32(unix.ENOENT))...), true, unix.ENOENT},
		{"an end without a code", message(unix.NLMSG_DONE), true, nil},
		{"a socket, then the end", append(message(20, make([]byte, 72)...), message(unix.NLMSG_DONE, code(0)...)...), true, nil},
		{"a socket, and more to come", message(20, make([]byte, 72)...), false, nil},
		{"a length that is none", make([]byte, 16), true, unix.EBADMSG},
		{"nothing", nil, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			done, err := diagAnswer(tc.said)
			if done != tc.done || !errors.Is(err, tc.want) {
				t.Errorf("%v, %v; want %v, %v", done, err, tc.done, tc.want)
			}
		})
	}
}

func TestARequestIsLaidOutAsTheKernelHasIt(t *testing.T) {
	if size := unsafe.Sizeof(diagRequest{}); size != 56 {
		t.Errorf("struct inet_diag_req_v2 is %d bytes, want 56", size)
	}
	if size := unsafe.Sizeof(diagMessage{}); size != 72 {
		t.Errorf("with its header %d bytes, want 72", size)
	}
}

func TestNamesThatAreCutShortAreAnError(t *testing.T) {
	if err := destroyNamed(bytes.NewReader(make([]byte, 55))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("55 bytes: %v", err)
	}
	if err := destroyNamed(bytes.NewReader(nil)); err != nil {
		t.Errorf("no bytes: %v", err)
	}
}

// A socket that is gone, and one whose place another has taken, are no errors,
// and nobody else is hurt.
func TestASocketThatIsGoneIsNoError(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	fds := [2]int{}
	for i := range fds {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	if err := unix.Bind(fds[0], &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fds[1], sa); err != nil {
		t.Fatal(err)
	}
	local, err := unix.Getsockname(fds[1])
	if err != nil {
		t.Fatal(err)
	}
	port := func(sa unix.Sockaddr) uint16 {
		return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, uint16(sa.(*unix.SockaddrInet4).Port)))
	}
	loopback := binary.NativeEndian.Uint32([]byte{127, 0, 0, 1})
	cookie, err := unix.GetsockoptUint64(fds[1], unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		t.Fatal(err)
	}
	s := headgateNamedSocket{Cookie: cookie, Local: [4]uint32{loopback}, Peer: [4]uint32{loopback},
		LocalPort: port(local), PeerPort: port(sa), Family: unix.AF_INET, Protocol: unix.IPPROTO_UDP}
	other, gone := s, s
	other.Cookie++
	gone.LocalPort++
	d, err := openDiag()
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	stands := func() bool { _, err := unix.Getpeername(fds[1]); return err == nil }
	for _, one := range []headgateNamedSocket{other, gone} {
		if err := d.destroy(&one); err != nil || !stands() {
			t.Errorf("%+v: %v, and the socket stands: %v", one, err, stands())
		}
	}
	if err := d.destroy(&s); err != nil || stands() {
		t.Errorf("the socket itself: %v, and it stands: %v", err, stands())
	}
}

package netns_test

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawConnect is connect(2) for addresses that have no Go type.
func rawConnect(fd int, sa *unix.RawSockaddr) error {
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(sa)), unsafe.Sizeof(*sa))
	if errno != 0 {
		return errno
	}
	return nil
}

package testenv

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ethtool sets a value of a device of this network namespace, as ethtool(8) does, or reads it: the command says which.
func Ethtool(device string, command uint32, value *uint32) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	set := struct{ command, value uint32 }{command, *value}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&set)}
	copy(request.name[:], device)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("ethtool %s, command %#x: %w", device, command, errno)
	}
	*value = set.value
	return nil
}

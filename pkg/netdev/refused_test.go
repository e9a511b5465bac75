package netdev

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Of four connections one is taken, one is refused and one is there already; of the last the
// answer never comes.
func TestWhatWasTakenBeforeAnErrorIsNotLeft(t *testing.T) {
	added, awaited := map[uint32]Connection{}, map[uint32]bool{}
	var all []Connection
	for i := range uint32(4) {
		all = append(all, Connection{From: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 80)})
		added[2*i+1], awaited[2*i], awaited[2*i+1] = all[i], true, true
	}
	lost, answered := errors.New("lost"), false
	left, err := refusedOf(func() (answers []syscall.NetlinkMessage, from *unix.SockaddrNetlink, err error) {
		if answered {
			return nil, nil, lost
		}
		answered = true
		for message, code := range []unix.Errno{unix.ENOENT, 0, 0, unix.ENOMEM, unix.ENOENT, unix.EEXIST, unix.ENOENT} {
			a := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.NLMSG_ERROR, Seq: uint32(message)}}
			a.Data = binary.NativeEndian.AppendUint32(nil, uint32(-int32(code)))
			answers = append(answers, a)
		}
		return answers, nil, nil
	}, added, awaited)
	if !errors.Is(err, lost) || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("the error is %v, want that of the connection that was refused, too", err)
	}
	if !slices.Equal(left, all[1:]) {
		t.Errorf("left are %v, want %v", left, all[1:])
	}
}

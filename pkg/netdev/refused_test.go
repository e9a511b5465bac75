package netdev

import (
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Of four connections one is taken, one is refused and one is there already; of the last the
// answer never comes.
func TestWhatWasTakenBeforeAnErrorIsNotLeft(t *testing.T) {
	b := batch{all: make([]Connection, 4), awaited: map[uint32]int{}}
	for i := range b.all {
		b.awaited[uint32(2*i+1)] = i // the one before forgets what may be there
	}
	lost, answered := errors.New("lost"), false
	left, err := b.refused(func() (answers []syscall.NetlinkMessage, from *unix.SockaddrNetlink, err error) {
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
	})
	if !errors.Is(err, lost) || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("the error is %v, want that of the connection that was refused, too", err)
	}
	if want := []int{1, 2, 3}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}

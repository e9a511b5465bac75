package netio

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// message is struct mmsghdr of recvmmsg(2).
type message struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// Batch is room for datagrams that go to or come from the kernel in one system
// call. It keeps its memory, and must not be copied.
type Batch struct {
	messages []message
	vectors  []unix.Iovec
	payloads [][]byte
	names    [][unix.SizeofSockaddrInet6]byte
	pinner   runtime.Pinner
}

// NewBatch returns room for count datagrams of up to size bytes.
func NewBatch(count, size int) *Batch {
	b := &Batch{
		messages: make([]message, count),
		vectors:  make([]unix.Iovec, count),
		payloads: make([][]byte, count),
		names:    make([][unix.SizeofSockaddrInet6]byte, count),
	}
	memory := make([]byte, count*size)
	// The kernel is given addresses that the collector cannot see through.
	b.pinner.Pin(&memory[0])
	b.pinner.Pin(&b.vectors[0])
	b.pinner.Pin(&b.names[0])
	for i := range b.messages {
		b.payloads[i] = memory[i*size : (i+1)*size : (i+1)*size]
		b.vectors[i].Base = &b.payloads[i][0]
		b.vectors[i].SetLen(size)
		b.messages[i].header.Iov = &b.vectors[i]
		b.messages[i].header.SetIovlen(1)
	}
	return b
}

// Close lets go of the memory.
func (b *Batch) Close() { b.pinner.Unpin() }

// Room returns the memory of a datagram in full.
func (b *Batch) Room(i int) []byte { return b.payloads[i] }

// Payload returns what was received as datagram i.
func (b *Batch) Payload(i int) []byte { return b.payloads[i][:b.messages[i].length] }

// SetLength says how much of a datagram is to be sent.
func (b *Batch) SetLength(i, length int) { b.vectors[i].SetLen(length) }

// Swap exchanges two datagrams with their peers.
func (b *Batch) Swap(i, j int) {
	b.payloads[i], b.payloads[j] = b.payloads[j], b.payloads[i]
	b.names[i], b.names[j] = b.names[j], b.names[i]
	b.messages[i].header.Namelen, b.messages[j].header.Namelen = b.messages[j].header.Namelen, b.messages[i].header.Namelen
	b.vectors[i], b.vectors[j] = b.vectors[j], b.vectors[i]
}

// Receive receives what is there, with the address of each peer, and returns
// how many datagrams that are. It does not wait.
func (b *Batch) Receive(fd int) (int, error) {
	for i := range b.messages {
		h := &b.messages[i].header
		h.Name, h.Namelen = &b.names[i][0], uint32(len(b.names[i]))
		b.vectors[i].SetLen(len(b.payloads[i]))
	}
	return b.call(unix.SYS_RECVMMSG, fd, 0, len(b.messages))
}

// Answer sends the datagrams from first up to, not including, end to the peers
// that they came from, and returns how many the kernel took.
func (b *Batch) Answer(fd, first, end int) (int, error) {
	return b.call(unix.SYS_SENDMMSG, fd, first, end-first)
}

// Send sends the first count datagrams to the peer that fd is connected to,
// and returns how many the kernel took. It does not wait.
func (b *Batch) Send(fd, count int) (int, error) {
	for i := range count {
		b.messages[i].header.Name, b.messages[i].header.Namelen = nil, 0
	}
	return b.call(unix.SYS_SENDMMSG, fd, 0, count)
}

func (b *Batch) call(trap uintptr, fd, first, count int) (int, error) {
	for {
		n, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[first])), uintptr(count), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

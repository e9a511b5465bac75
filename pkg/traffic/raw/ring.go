package raw

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The ring: frames of ringFrame bytes, of which ringBlock bytes are in one piece
// of memory.
const (
	ringFrame  = 2048
	ringBlock  = 1 << 16
	ringFrames = 512
	// ringData is where the packet begins in a frame.
	ringData = (unix.TPACKET_HDRLEN - unix.SizeofSockaddrLinklayer + unix.TPACKET_ALIGNMENT - 1) &^ (unix.TPACKET_ALIGNMENT - 1)
)

// What the status of a frame says: see packet(7) and linux/if_packet.h.
const (
	frameFree   uint32 = 0
	frameToSend uint32 = 1
)

// ring is a sender through memory shared with the kernel.
type ring struct {
	fd       int
	memory   []byte
	template *template
	next     int
	random   *rand.Rand
}

// openRing returns a ring of a device in the network namespace of this thread.
func openRing(t *template, device int, seed uint64) (*ring, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	r := &ring{fd: fd, template: t, random: rand.New(rand.NewPCG(seed, 1))}
	if err := r.setUp(device); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *ring) setUp(device int) error {
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return fmt.Errorf("choose the ring's version: %w", err)
	}
	// Queueing disciplines are for traffic that would wait.
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("go round the queueing discipline: %w", err)
	}
	request := unix.TpacketReq{
		Block_size: ringBlock, Block_nr: ringFrames * ringFrame / ringBlock, Frame_size: ringFrame, Frame_nr: ringFrames,
	}
	if err := unix.SetsockoptTpacketReq(r.fd, unix.SOL_PACKET, unix.PACKET_TX_RING, &request); err != nil {
		return fmt.Errorf("make the ring: %w", err)
	}
	var err error
	if r.memory, err = unix.Mmap(r.fd, 0, ringFrames*ringFrame, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map the ring: %w", err)
	}
	// Protocol 0: it sends and never receives.
	if err := unix.Bind(r.fd, &unix.SockaddrLinklayer{Ifindex: device}); err != nil {
		return fmt.Errorf("bind to the device: %w", err)
	}
	return nil
}

func (r *ring) close() error {
	var err error
	if r.memory != nil {
		err = unix.Munmap(r.memory)
	}
	return errors.Join(err, unix.Close(r.fd))
}

// atOnce is half the ring: the kernel may have the other half.
func (r *ring) atOnce() int { return ringFrames / 2 }

// send sends up to count packets and returns how many the kernel took.
func (r *ring) send(count int) (int, error) {
	filled := 0
	for ; filled < min(count, r.atOnce()); filled++ {
		frame := r.memory[r.next*ringFrame : (r.next+1)*ringFrame]
		status := (*uint32)(unsafe.Pointer(&frame[0]))
		if atomic.LoadUint32(status) != frameFree {
			break // under way still
		}
		r.template.vary(r.random.Uint32())
		*(*uint32)(unsafe.Pointer(&frame[4])) = uint32(copy(frame[ringData:], r.template.frame))
		atomic.StoreUint32(status, frameToSend)
		r.next = (r.next + 1) % ringFrames
	}
	for {
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(r.fd), 0, 0, 0, 0, 0)
		switch errno {
		case 0:
			return filled, nil
		case unix.EINTR:
		case unix.ENOBUFS, unix.EAGAIN:
			return filled, nil // the rest stays in the ring, and goes with the next
		default:
			return 0, fmt.Errorf("send: %w", errno)
		}
	}
}

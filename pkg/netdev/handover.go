package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Connection is one that somebody translates before and after the kernel's stack, so that
// connection tracking does not know what its client has asked for.
type Connection struct {
	Protocol uint8
	From, To netip.AddrPort // as the client has it
	Inside   netip.AddrPort // the client, as the stack has it
	Backend  netip.AddrPort
	Outside  netip.AddrPort // the client, as the backend has it; not valid where that is left to the stack
	TCP      TCPState       // of TCP
}

// TCPState is how far a connection is, as connection tracking numbers it.
type TCPState byte

// The states that are handed over. Whoever has closed may come again by the same port.
const (
	TCPOpening TCPState = 2 // SYN_RECV: not both sides have shown that they are there
	TCPOpen    TCPState = 3 // ESTABLISHED
	TCPClosing TCPState = 7 // TIME_WAIT: a side has closed it
)

// ErrNoTranslation says that no rules of the node translate addresses, so that the kernel
// goes on with no translation.
var ErrNoTranslation = errors.New("the kernel translates no addresses: there is no chain of type nat")

// trackLoose says whether connection tracking takes packets from amid a TCP connection for a new one.
const trackLoose = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"

// looseBefore is the name of a symbolic link whose target is what trackLoose was.
const looseBefore = "nf_conntrack_tcp_loose"

// TrackFromSYN has connection tracking take only a SYN for a new TCP connection, until
// TrackAsBefore. Else a packet that is translated before an entry is there, and is tracked after,
// makes one of its own with another source port, and its connection is reset. Whoever is killed
// meanwhile leaves a note in dir, which should not outlive the kernel, as the setting does not.
// Where either cannot be made, all stays as it is.
func TrackFromSYN(dir string) {
	before, err := os.ReadFile(trackLoose)
	value, note := strings.TrimSpace(string(before)), filepath.Join(dir, looseBefore)
	if err != nil || value == "0" {
		return // by somebody who was killed, perhaps: then the note is there
	}
	_ = os.Remove(note) // somebody has set it since
	if os.Symlink(value, note) == nil && os.WriteFile(trackLoose, []byte("0"), 0) != nil {
		_ = os.Remove(note) // else a removal would fail at taking back what it did not do
	}
}

// TrackAsBefore takes back TrackFromSYN, also that of somebody who was killed.
func TrackAsBefore(dir string) error {
	note := filepath.Join(dir, looseBefore)
	before, err := os.Readlink(note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(trackLoose, []byte(before), 0)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it goes with connection tracking, and comes as it was at first
		return fmt.Errorf("set %s as it was: %w", trackLoose, err)
	}
	return os.Remove(note)
}

// HandOver has the kernel's connection tracking go on with connections, as if its rules had
// translated them; those that it translates so already stay, and those that are closed and
// whose client has begun another one by the same port. It returns the places of those that
// it did not take, which may be tried again.
func HandOver(all []Connection) (left []int, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	for i := range all {
		left = append(left, i)
	}
	if translates, err := hasNAT(); err != nil || !translates {
		return left, errors.Join(err, ErrNoTranslation)
	}
	known, err := trackedConnections()
	if err != nil {
		return left, err
	}
	s, err := openConntrack()
	if err != nil {
		return left, err
	}
	defer s.Close()
	left = slices.DeleteFunc(left, func(i int) bool { return known.translates(all[i]) })
	// A packet that comes between the end of one entry and the beginning of the other makes
	// one of its own. It takes some microseconds: that of datagrams that come all the time is
	// met once in a while, and hardly ever by each of so many tries at uneven times.
	for try := range handOverTries {
		if len(left) == 0 || err != nil {
			break
		}
		time.Sleep(time.Duration(try) * time.Millisecond)
		left, err = inParts(left, func(some []int) ([]int, error) { return handOverSome(s, all, some, known) })
	}
	if len(left) == 0 || err != nil {
		return left, err
	}
	known, err = trackedConnections()
	return slices.DeleteFunc(left, func(i int) bool { return known.hasBegunAnew(all[i]) }), err
}

// handOverTries is how often a connection is handed over.
const handOverTries = 20

// ForgetOthers has connection tracking forget what it knows by the address that the clients of
// connections have asked for, where it is not what somebody translates now: it is of another
// time, when rules sent the client's packets to a backend. It is for a moment in which no
// packet of these reaches the stack.
func ForgetOthers(all []Connection) error {
	if len(all) == 0 {
		return nil
	}
	known, err := trackedConnections()
	if err != nil {
		return err
	}
	var others []int
	for i, c := range all {
		if _, there := known[inside{c.Protocol, c.From, c.To}]; there && !known.isJustAs(c) {
			others = append(others, i)
		}
	}
	if len(others) == 0 {
		return nil
	}
	s, err := openConntrack()
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = inParts(others, func(some []int) ([]int, error) {
		b := batch{all: all}
		for _, i := range some {
			b.forget(all[i], all[i].From, all[i].To)
		}
		return b.send(s)
	})
	return err
}

// openConntrack opens a socket to the connection tracking of the calling thread's namespace.
func openConntrack() (*nl.NetlinkSocket, error) {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	if err := s.SetReceiveTimeout(&unix.Timeval{Sec: 5}); err != nil { // the kernel answers at once
		s.Close()
		return nil, err
	}
	return s, nil
}

// inParts does something with so many of all as have room for their answers in a socket.
func inParts(all []int, do func([]int) ([]int, error)) (left []int, err error) {
	const atOnce = 128
	for some := range slices.Chunk(all, atOnce) {
		refused, why := do(some)
		left, err = append(left, refused...), errors.Join(err, why)
	}
	return left, err
}

func hasNAT() (bool, error) {
	chains, err := Chains()
	for _, c := range chains {
		if c.NAT && c.Hooked {
			return true, nil
		}
	}
	return false, err
}

// handOverSome puts an entry that translates in the place of each that does not.
func handOverSome(s *nl.NetlinkSocket, all []Connection, some []int, known tracked) (left []int, err error) {
	b := batch{all: all, awaited: map[uint32]int{}}
	for _, i := range some {
		c := all[i]
		c.Outside = known.outside(c)
		b.forget(c, c.Inside, c.Backend)
		b.add(i, c)
	}
	return b.send(s)
}

// batch is messages to connection tracking that are sent at once.
type batch struct {
	all     []Connection
	bytes   []byte
	awaited map[uint32]int // by the number of the message, the place of what it adds
}

// forget ends an entry of a connection. That there was none is answered, and nobody waits for it.
func (b *batch) forget(c Connection, from, to netip.AddrPort) {
	b.bytes = append(b.bytes, ctMessage(c, nl.IPCTNL_MSG_CT_DELETE, 0, ctTuple(nl.CTA_TUPLE_ORIG, c.Protocol, from, to)).Serialize()...)
}

// add makes an entry of a connection.
func (b *batch) add(place int, c Connection) {
	message := ctMessage(c, nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, ctEntry(c)...)
	b.awaited[message.Seq] = place
	b.bytes = append(b.bytes, message.Serialize()...)
}

// send returns the places of what the kernel does not take.
func (b *batch) send(s *nl.NetlinkSocket) (left []int, err error) {
	if err := unix.Sendto(s.GetFd(), b.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return b.unanswered(), err
	}
	return b.refused(s.Receive)
}

// unanswered returns the places of what nobody has said was added.
func (b *batch) unanswered() []int {
	return slices.Sorted(maps.Values(b.awaited))
}

// refused waits for the answers to messages, and returns the places of what is not added, as
// far as is known.
func (b *batch) refused(receive func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error)) (left []int, err error) {
	for len(b.awaited) > 0 {
		answers, _, receiveErr := receive()
		if receiveErr != nil {
			return append(left, b.unanswered()...), errors.Join(err, receiveErr)
		}
		for _, a := range answers {
			place, is := b.awaited[a.Header.Seq]
			if a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 || !is {
				continue
			}
			delete(b.awaited, a.Header.Seq)
			why := unix.Errno(-int32(binary.NativeEndian.Uint32(a.Data)))
			if why == 0 {
				continue
			}
			left = append(left, place)
			if why != unix.EEXIST {
				err = fmt.Errorf("have the kernel track the connection from %s to %s: %w", b.all[place].From, b.all[place].To, why)
			}
		}
	}
	return left, err
}

package load

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/netio"
	"github.com/headgate/headgate/pkg/traffic/wire"
)

// checked bounds how many targets are asked before a run.
const checked = 16

// udpTries is how many datagrams go to a target before it counts as silent:
// one may be lost.
const udpTries = 3

// AbsentError says that a target is not there, or not what it should be.
type AbsentError struct {
	Target netip.AddrPort
	Reason string // and what to do
}

func (e *AbsentError) Error() string { return fmt.Sprintf("target %s: %s", e.Target, e.Reason) }

// Check returns an AbsentError if a target of a load is not there. Run does the
// same at its beginning, so that a run against nothing does not begin.
func Check(spec Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	spec = spec.withDefaults()
	return check(&spec)
}

func check(spec *Spec) error {
	sources := newSources(spec, 0)
	for _, t := range spec.Targets[:min(len(spec.Targets), checked)] {
		var err error
		if spec.Kind.OverUDP() {
			err = checkUDP(spec, sources, t)
		} else {
			err = checkTCP(spec, sources, t)
		}
		if err != nil {
			return &AbsentError{t, strings.ReplaceAll(err.Error(), "\n", "; ")}
		}
	}
	return nil
}

// dialBlocking returns a socket whose steps end after a timeout, connected unless
// the load's are not.
func dialBlocking(spec *Spec, sources *sources, target netip.AddrPort, kind int) (int, error) {
	family := netio.Family(target.Addr())
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	limit := unix.NsecToTimeval(spec.Timeout.Nanoseconds())
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return -1, errors.Join(fmt.Errorf("set timeout: %w", err), unix.Close(fd))
		}
	}
	if err := sources.bind(fd, family); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	if spec.Kind == SendTo {
		return fd, nil
	}
	if err := connect(fd, netio.Sockaddr(target)); err != nil {
		return -1, errors.Join(explain(spec, err), unix.Close(fd))
	}
	return fd, nil
}

// connect connects a blocking socket. A signal of the Go runtime may come between:
// the connection goes on by itself, and is asked for again until it stands.
func connect(fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	for errors.Is(err, unix.EINTR) {
		if err = unix.Connect(fd, to); errors.Is(err, unix.EISCONN) {
			return nil
		}
	}
	return err
}

// explain says what a failed connect() means.
func explain(spec *Spec, err error) error {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return errors.New("connection refused: nothing listens there; start headgate-bench server, or look at the port")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.ETIMEDOUT):
		return fmt.Errorf("no answer within %s: look at routes and filters on the way", spec.Timeout)
	case kindOf(err) == "unreachable":
		return fmt.Errorf("%s: look at the routes of this network namespace", err)
	}
	return err
}

func checkTCP(spec *Spec, sources *sources, target netip.AddrPort) error {
	fd, err := dialBlocking(spec, sources, target, unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	p, err := protocolOf(spec)
	if err != nil || p.reader == nil {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	reader := p.reader()
	reader.begin(0)
	if _, err := unix.Write(fd, p.request); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	buffer := make([]byte, bufferSize)
	for {
		n, err := unix.Read(fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return fmt.Errorf("connected, but no answer within %s: is it headgate-bench server?", spec.Timeout)
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		case n == 0:
			return errors.New("connected, but closed without an answer: is it headgate-bench server?")
		}
		if whole, err := reader.take(buffer[:n]); whole || err != nil {
			return err
		}
	}
}

func checkUDP(spec *Spec, sources *sources, target netip.AddrPort) error {
	share := *spec
	share.Timeout = max(spec.Timeout/udpTries, time.Millisecond)
	fd, err := dialBlocking(&share, sources, target, unix.SOCK_DGRAM)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request := make([]byte, wire.RequestHeader)
	wire.Request{Length: wire.RequestHeader, Flags: wire.Report}.Put(request)
	answer := make([]byte, wire.MaxDatagram)
	for range udpTries {
		if spec.Kind == SendTo {
			err = unix.Sendto(fd, request, 0, netio.Sockaddr(target))
		} else {
			_, err = unix.Write(fd, request)
		}
		if err != nil {
			return explain(spec, err)
		}
		n, err := unix.Read(fd, answer)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return explain(spec, err)
		}
		_, err = new(datagramReader).take(answer[:n])
		return err
	}
	return fmt.Errorf("no answer within %s: is headgate-bench server there?", spec.Timeout)
}

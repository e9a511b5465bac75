package hostile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// protocol is the variable that tells the role talk what to speak; with lasting one of
// its conversations goes on until the end.
const (
	protocol = "HEADGATE_TEST_PROTOCOL"
	lasting  = "HEADGATE_TEST_LASTING"
)

// outcome is what came of one conversation.
type outcome struct {
	Protocol     int
	Local        netip.AddrPort
	Began, Ended time.Time
	First        time.Duration // until the first answer
	Rounds       int           // that were answered
	Name         string        // of the server that answered first, as far as one did
	Kind, Error  string        // of what failed, "" for nothing
}

// errWrong is an answer that is none.
var errWrong = errors.New("wrong answer")

// kindOf sorts what fails.
func kindOf(err error) string {
	for _, k := range []struct {
		cause error
		kind  string
	}{
		{unix.ECONNREFUSED, "refused"}, {unix.ECONNRESET, "reset"}, {unix.ECONNABORTED, "aborted"}, {errWrong, "wrong answer"},
		{unix.EDESTADDRREQ, "aborted"}, // a datagram socket that was, and that heard of it before
		{unix.ETIMEDOUT, "timed out"}, {unix.EAGAIN, "timed out"}, {unix.EINPROGRESS, "timed out"}, {io.EOF, "closed by the server"},
	} {
		if errors.Is(err, k.cause) {
			return k.kind
		}
	}
	return "another error"
}

// talk is a role: until its input ends it has eight conversations at a time with servers
// that say their name and repeat what they hear, of up to half a second each, and prints
// what came of each.
func talk() error {
	to, err := targetOf()
	if err != nil {
		return err
	}
	typ := map[string]int{"tcp": unix.SOCK_STREAM, "udp": unix.SOCK_DGRAM}[os.Getenv(protocol)]
	running, stop := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for running.Err() == nil {
				rounds := rand.IntN(10)
				if i == 0 && os.Getenv(lasting) != "" {
					rounds = math.MaxInt
				}
				o := converse(running, typ, to, rounds)
				mu.Lock()
				_ = out.Encode(o)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return nil
}

// converse has one connection, with so many rounds after the first if nobody stops it.
func converse(running context.Context, typ int, to netip.AddrPort, rounds int) outcome {
	o := outcome{Protocol: typ, Began: time.Now()}
	fd, err := dial(typ, to, 10*time.Second)
	defer func() { _ = unix.Close(fd) }()
	o.Local = localOf(fd)
	if err == nil {
		o.Name, err = exchange(fd, "hello")
		o.First = time.Since(o.Began)
	}
	for ; err == nil && o.Rounds < rounds && running.Err() == nil; o.Rounds++ {
		time.Sleep(50 * time.Millisecond)
		var name string
		if name, err = exchange(fd, "again"); err == nil && name != o.Name {
			err = fmt.Errorf("%w: from %q", errWrong, name)
		}
	}
	if o.Ended = time.Now(); err != nil {
		o.Kind, o.Error = kindOf(err), err.Error()
	}
	return o
}

// exchange says something, and returns the name before the echo.
func exchange(fd int, say string) (name string, err error) {
	if _, err := unix.Write(fd, []byte(say)); err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	var said string
	for b := make([]byte, 64); !strings.HasSuffix(said, say); {
		n, err := unix.Read(fd, b)
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err != nil {
			return "", fmt.Errorf("receive: %w", err)
		}
		said += string(b[:n])
	}
	return strings.TrimSuffix(said, " "+say), nil
}

// localOf is the address of a socket. A connection that was refused has still one.
func localOf(fd int) netip.AddrPort {
	a, err := unix.Getsockname(fd)
	if in, ok := a.(*unix.SockaddrInet4); err == nil && ok {
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
	}
	return netip.AddrPort{}
}

package hostile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// protocol is the variable that tells the role talk what to speak.
const protocol = "HEADGATE_TEST_PROTOCOL"

// outcome is what came of a connection that failed or, without error, of all others.
type outcome struct {
	Protocol     int
	Local        netip.AddrPort
	Began, Ended time.Time
	Name         string // of the server that answered, as far as one did
	Error        string
	Made         int           // connections
	Worst        time.Duration // of connect(), and of a first answer
}

// talk is a role: until its input ends it opens connections to a server that says its
// name and repeats what it hears, talks for up to half a second on each, and prints
// what failed.
func talk() error {
	to, err := targetOf()
	if err != nil {
		return err
	}
	typ := map[string]int{"tcp": unix.SOCK_STREAM, "udp": unix.SOCK_DGRAM}[os.Getenv(protocol)]
	stop := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(stop) }()
	var mu sync.Mutex
	out, total := json.NewEncoder(os.Stdout), outcome{Protocol: typ}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				o, took := converse(typ, to)
				mu.Lock()
				total.Made, total.Worst = total.Made+1, max(total.Worst, took)
				if o.Error != "" {
					_ = out.Encode(o)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return out.Encode(total)
}

// converse has one connection.
func converse(typ int, to netip.AddrPort) (o outcome, took time.Duration) {
	o = outcome{Protocol: typ, Began: time.Now()}
	fd, err := dial(typ, to, 10*time.Second)
	defer func() { _ = unix.Close(fd) }()
	o.Local = localOf(fd)
	if err == nil {
		o.Name, err = exchange(fd, "hello")
		took = time.Since(o.Began)
	}
	for range rand.IntN(10) {
		if err != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
		var name string
		if name, err = exchange(fd, "again"); err == nil && name != o.Name {
			err = fmt.Errorf("the connection moved to %s", name)
		}
	}
	if o.Ended = time.Now(); err != nil {
		o.Error = err.Error()
	}
	return o, took
}

// exchange says something, and returns the name before the echo.
func exchange(fd int, say string) (name string, err error) {
	if _, err := unix.Write(fd, []byte(say)); err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	var said string
	for b := make([]byte, 64); !strings.HasSuffix(said, say); {
		n, err := unix.Read(fd, b)
		if err != nil {
			return "", fmt.Errorf("receive: %w", err)
		}
		if n == 0 {
			return "", errors.New("receive: closed by the server")
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

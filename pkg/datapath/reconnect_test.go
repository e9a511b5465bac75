package datapath

import (
	"bytes"
	"io"
	"os"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

// A process that shares a socket may have closed it since it was named: then another one has it, or the search is done again.
func TestASocketIsLookedForAtEachProcessThatHasIt(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		t.Fatal(err)
	}
	second, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(second)
	here := headgateSocketFile{Cookie: cookie, Process: int32(os.Getpid()), Fd: uint32(fd)}
	closed, other, another, ended := here, here, here, here
	closed.Fd, other.Fd, another.Fd, ended.Process = 1<<20, 0, uint32(second), 1<<30
	for _, tc := range []struct {
		name  string
		files []headgateSocketFile
		gone  bool
	}{
		{"none", nil, false},
		{"one", []headgateSocketFile{here, here}, false},
		{"closed", []headgateSocketFile{closed}, true},
		{"another file", []headgateSocketFile{other}, true},
		{"another socket", []headgateSocketFile{another}, true},
		{"ended", []headgateSocketFile{ended}, true},
		{"here at last", []headgateSocketFile{closed, other, ended, here}, false},
		{"here at first", []headgateSocketFile{here, closed}, false},
	} {
		var named bytes.Buffer
		for _, f := range tc.files {
			named.Write(bytesOf(&f))
		}
		var p reconnectPass
		if err := p.reconnectNamed(iotest.OneByteReader(&named)); err != nil || p.gone != tc.gone {
			t.Errorf("%s: gone: %t, %v; want %t", tc.name, p.gone, err, tc.gone)
		}
	}
}

// The kernel says EAGAIN after a million objects of which it has written nothing.
func TestAnIteratorIsReadOnAfterAPause(t *testing.T) {
	data := []byte("record")
	pauses := 2
	got, err := io.ReadAll(patient{readerFunc(func(b []byte) (int, error) {
		if pauses > 0 {
			pauses--
			return 0, unix.EAGAIN
		}
		n := copy(b, data)
		if data = data[n:]; n == 0 {
			return 0, io.EOF
		}
		return n, nil
	})})
	if err != nil || string(got) != "record" {
		t.Errorf("%q, %v; want record", got, err)
	}
}

// readerFunc is a function as an io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

package cli

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKeysAreReadOfWhatATerminalSends(t *testing.T) {
	for _, tc := range []struct {
		sent  string
		atEnd bool
		want  []key
		begun string
	}{
		{"qA/", false, []key{'q', 'A', '/'}, ""},
		{"\r\x7f\x03\x1a\x00", false, []key{keyEnter, keyBackspace, keyQuit, keySuspend}, ""},
		{"\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[F", false, []key{keyUp, keyDown, keyPageUp, keyPageDown, keyHome, keyEnd}, ""},
		{"\x1b[1;5Cq", false, []key{'q'}, ""}, // a key that means nothing
		{"\x1b", false, nil, "\x1b"},
		{"q\x1b[5", false, []key{'q'}, "\x1b[5"},
		{"\x1b", true, []key{keyEscape}, ""},
		{"\x1b[", true, []key{keyEscape, '['}, ""},
		{"\x1b\x1b", true, []key{keyEscape, keyEscape}, ""},
		{"\x1bq", false, []key{keyEscape, 'q'}, ""},
		{"é\xc3", false, []key{'é'}, "\xc3"},
		{"\xc3", true, nil, ""},
		{"\xff", false, nil, ""},
	} {
		got, begun := decodeKeys([]byte(tc.sent), tc.atEnd)
		if !slices.Equal(got, tc.want) || string(begun) != tc.begun {
			t.Errorf("%q: keys %d, begun %q, want %d and %q", tc.sent, got, begun, tc.want, tc.begun)
		}
	}
}

// A terminal that shows nothing, and one that is none: neither stays as it was taken, and both can be left.
func TestATerminalThatCannotBeTakenIsAsItWas(t *testing.T) {
	end := openPTY(t)
	before, err := unix.IoctlGetTermios(int(end.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := os.Open(os.DevNull) // for reading alone
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	screen := &terminal{in: end, out: closed}
	if err := screen.take(); err == nil {
		t.Error("nothing can be drawn, and that is no error")
	}
	if after, err := unix.IoctlGetTermios(int(end.Fd()), unix.TCGETS); err != nil || *after != *before {
		t.Errorf("the terminal is %+v, %v, was %+v", after, err, before)
	}
	screen.in = closed
	if err := screen.take(); err == nil {
		t.Error("keys of no terminal are read")
	}
	screen.leave()
}

// openPTY returns a terminal.
func openPTY(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be made: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end.Close() })
	return end
}

// FuzzKeys reads whatever a terminal may send: what is read comes to an end.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("\x1b[1;5Cq\x1bO"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		_, begun := decodeKeys(sent, false)
		if _, begun := decodeKeys(begun, true); len(begun) > 0 {
			t.Errorf("%q leaves %q", sent, begun)
		}
	})
}

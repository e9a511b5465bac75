package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is what a person looks at and types on, while a program has all of it.
type terminal struct {
	in, out *os.File
	before  *term.State
	once    sync.Once // it is restored
	wake    [2]int    // a pipe: closing its end for writing ends the reading of keys
	keys    chan key  // closed when no more come
}

// What has the terminal show another screen without a cursor, and the one before again.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[0m\x1b[?25h\x1b[?1049l"
)

// errNoTerminal says that nobody can look or type.
var errNoTerminal = errors.New("no terminal")

// openTerminal takes a terminal, until restore.
func openTerminal(in, out *os.File) (*terminal, error) {
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil, errNoTerminal
	}
	t := &terminal{in: in, out: out, keys: make(chan key)}
	if err := unix.Pipe2(t.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	if err := t.take(); err != nil {
		_, _ = unix.Close(t.wake[0]), unix.Close(t.wake[1]) // are open
		return nil, err
	}
	go t.readKeys()
	return t, nil
}

// take has the terminal pass on each key as it is pressed, and show another screen. After an error the
// terminal is as it was.
func (t *terminal) take() error {
	before, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return fmt.Errorf("read single keys: %w", err)
	}
	t.before = before
	if _, err := t.out.WriteString(enterScreen); err != nil {
		t.leave()
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	return nil
}

// leave has the terminal be as it was. Where it is gone there is nothing left to do.
func (t *terminal) leave() {
	_, _ = t.out.WriteString(leaveScreen)
	_ = term.Restore(int(t.in.Fd()), t.before)
}

// restore ends everything, once.
func (t *terminal) restore() {
	t.once.Do(func() {
		t.leave()
		_ = unix.Close(t.wake[1]) // is open
		for range t.keys {        // until nobody reads keys any more
		}
		_ = unix.Close(t.wake[0])
	})
}

// suspend gives the terminal back and stops the process, as Ctrl-Z does, until it goes on. Where no
// shell could have it go on, as in kubectl exec, the kernel does not stop it.
func (t *terminal) suspend() error {
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, unix.SIGCONT)
	defer signal.Stop(goesOn)
	t.leave()
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		return err
	}
	select {
	case <-goesOn:
	case <-time.After(stopWait):
	}
	return t.take()
}

// stopWait is for the kernel to stop a process that has asked for it.
const stopWait = 100 * time.Millisecond

// size returns how many characters fit.
func (t *terminal) size() (width, height int, err error) {
	return term.GetSize(int(t.out.Fd()))
}

// escapeWait is how long the rest of what one key sends may take, over a slow line.
const escapeWait = 50 * time.Millisecond

// readKeys passes on what is pressed, until there is an end.
func (t *terminal) readKeys() {
	defer close(t.keys)
	var begun []byte
	buffer := make([]byte, 256)
	for {
		wait := -1
		if len(begun) > 0 {
			wait = int(escapeWait / time.Millisecond)
		}
		some, end := t.await(wait)
		if end {
			return
		}
		if some {
			n, err := unix.Read(int(t.in.Fd()), buffer)
			if err == unix.EINTR || err == unix.EAGAIN {
				continue
			}
			if err != nil || n == 0 {
				return
			}
			begun = append(begun, buffer[:n]...)
		}
		var found []key
		found, begun = decodeKeys(begun, !some)
		for _, k := range found {
			if !t.pass(k) {
				return
			}
		}
	}
}

// pass gives a key to whoever waits for one, false if that has ended.
func (t *terminal) pass(k key) bool {
	for {
		select {
		case t.keys <- k:
			return true
		case <-time.After(escapeWait):
			if t.isOver() {
				return false
			}
		}
	}
}

// isOver says whether keys are no longer wanted.
func (t *terminal) isOver() bool {
	fds := []unix.PollFd{{Fd: int32(t.wake[0])}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// await waits for something to read, for so many milliseconds or, with -1, for ever.
func (t *terminal) await(milliseconds int) (some, end bool) {
	fds := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}, {Fd: int32(t.wake[0])}}
	for {
		n, err := unix.Poll(fds, milliseconds)
		switch {
		case err == unix.EINTR:
		case err != nil || fds[1].Revents != 0:
			return false, true
		default:
			return n > 0, false
		}
	}
}

// sequences are what terminals send for keys without a character, after escape.
var sequences = map[string]key{
	"[A": keyUp, "OA": keyUp, "[B": keyDown, "OB": keyDown, "[5~": keyPageUp, "[6~": keyPageDown,
	"[H": keyHome, "OH": keyHome, "[1~": keyHome, "[7~": keyHome, "[F": keyEnd, "OF": keyEnd, "[4~": keyEnd, "[8~": keyEnd,
}

// controls are keys that send one byte, which is no character.
var controls = map[byte]key{
	'\r': keyEnter, '\n': keyEnter, 0x7f: keyBackspace, 0x08: keyBackspace, 0x03: keyQuit, 0x1a: keySuspend, 0x10: keyUp, 0x0e: keyDown,
}

// decodeKeys returns the keys that bytes of a terminal stand for, and what is the begin of another
// one. At the end nothing more comes for some time: an escape then stands for itself.
func decodeKeys(from []byte, atEnd bool) (found []key, begun []byte) {
	for len(from) > 0 {
		size := 1
		switch k, isControl := controls[from[0]]; {
		case isControl:
			found = append(found, k)
		case from[0] == 0x1b:
			size = sequenceSize(from)
			if size == 0 && !atEnd {
				return found, from
			}
			if k, known := sequences[string(from[1:max(size, 1)])]; known {
				found = append(found, k)
			} else if size <= 1 {
				size, found = 1, append(found, keyEscape)
			}
		case !utf8.FullRune(from) && !atEnd:
			return found, from
		default:
			var r rune
			if r, size = utf8.DecodeRune(from); r >= ' ' && r != utf8.RuneError {
				found = append(found, key(r))
			}
		}
		from = from[size:]
	}
	return found, nil
}

// sequenceSize returns how many bytes belong to an escape, 0 where the end is still to come,
// and 1 where it stands alone.
func sequenceSize(from []byte) int {
	switch {
	case len(from) == 1:
		return 0
	case from[1] == 'O':
		if len(from) < 3 {
			return 0
		}
		return 3
	case from[1] != '[':
		return 1
	}
	if i := bytes.IndexFunc(from[2:], func(r rune) bool { return r >= 0x40 && r <= 0x7e }); i >= 0 {
		return 2 + i + 1
	}
	return 0
}

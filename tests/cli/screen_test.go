package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// screen FILE COMMAND... runs a command in a terminal of 80 columns and 24 lines, and does what
// stands in a file, line by line:
//
//	see PATTERN     wait until a line of a frame matches that was drawn since the last step below
//	type KEYS       press keys, written as Go writes a text
//	dial udp A P    have a process in the cgroup connect; hold, connect, tracing and exec are those of scripts, too
//	size 60 10      have the terminal be of another size
//	signal TERM     send a signal
//	leaves CODE     wait until the command has ended so, with the terminal as it was
func (p *place) screen(ts *testscript.TestScript, _ bool, args []string) {
	s, err := openScreen()
	ts.Check(err)
	defer s.close()
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Env = append(os.Environ(), "TERM=xterm", "PATH="+ts.Getenv("PATH"), "STATE_DIRECTORY="+ts.Getenv("STATE_DIRECTORY"))
	cmd.Dir = ts.Getenv("WORK")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.end, s.end, s.end
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if path, err := exec.LookPath(args[1]); err == nil {
		cmd.Path = path
	}
	ts.Check(cmd.Start())
	defer func() { _ = cmd.Process.Kill() }() // which says that it has ended, mostly
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if line = strings.TrimSpace(line); line != "" {
			if err := p.step(ts, s, cmd, line); err != nil {
				all := s.shown()
				ts.Fatalf("%s: %v; shown is\n%s", line, err, all[len(all)-1])
			}
		}
	}
}

// step does what a line says, at the terminal or beside it.
func (p *place) step(ts *testscript.TestScript, s *terminalScreen, cmd *exec.Cmd, line string) error {
	words := strings.Fields(line)
	beside := map[string]func(*testscript.TestScript, bool, []string){"dial": dial, "hold": hold, "connect": p.connect, "tracing": tracing}
	switch do := beside[words[0]]; {
	case do != nil:
		s.mark()
		do(ts, false, words[1:])
		return nil
	case words[0] == "exec":
		s.mark()
		words = strings.Fields(strings.ReplaceAll(line, "BPFROOT", ts.Getenv("BPFROOT")))
		return ts.Exec(words[1], words[2:]...)
	default:
		return s.do(cmd, line)
	}
}

// terminalScreen is a terminal of which the other end is this test.
type terminalScreen struct {
	master, end *os.File
	before      *unix.Termios
	mu          sync.Mutex
	sent        []byte // by the program
	from        int    // of what was sent: where the last step was
}

func openScreen() (*terminalScreen, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	end, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	s := &terminalScreen{master: master, end: end}
	if s.before, err = unix.IoctlGetTermios(int(end.Fd()), unix.TCGETS); err == nil {
		err = s.resize(80, 24)
	}
	go s.read()
	return s, err
}

func (s *terminalScreen) resize(width, height uint16) error {
	return unix.IoctlSetWinsize(int(s.end.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width})
}

// read keeps what the program sends, until the terminal is closed.
func (s *terminalScreen) read() {
	buffer := make([]byte, 1<<16)
	for {
		n, err := s.master.Read(buffer)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.sent = append(s.sent, buffer[:n]...)
		s.mu.Unlock()
	}
}

func (s *terminalScreen) close() {
	_ = s.end.Close()
	_ = s.master.Close() // neither was written to
}

// all returns what the program has sent.
func (s *terminalScreen) all() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.sent)
}

// What a program that draws frames sends: it goes to the top, clears lines, and ends a frame by
// clearing what is below it.
var (
	frames  = regexp.MustCompile(`(?s)\x1b\[H([^\x1b]|\x1b\[[0-9]*[mK])*\x1b\[0m\x1b\[J`)
	escapes = regexp.MustCompile(`\x1b\[[?0-9]*[a-zA-Z]`)
)

// mark has see look at what is drawn from now on.
func (s *terminalScreen) mark() { s.from = len(s.all()) }

// shown returns the frames since the last step, or what else was written.
func (s *terminalScreen) shown() (all []string) {
	sent := s.all()[s.from:]
	texts := frames.FindAll(sent, -1)
	if texts == nil {
		texts = [][]byte{sent}
	}
	for _, text := range texts {
		all = append(all, strings.ReplaceAll(escapes.ReplaceAllString(string(text), ""), "\r\n", "\n"))
	}
	return all
}

// do does what a line says.
func (s *terminalScreen) do(cmd *exec.Cmd, line string) error {
	what, of, _ := strings.Cut(line, " ")
	switch what {
	case "see":
		return s.see(of)
	case "type":
		s.mark()
		keys, err := strconv.Unquote(`"` + of + `"`)
		if err == nil {
			_, err = s.master.WriteString(keys)
		}
		return err
	case "size":
		var width, height uint16
		if _, err := fmt.Sscan(of, &width, &height); err != nil {
			return err
		}
		s.mark()
		return s.resize(width, height)
	case "signal":
		return cmd.Process.Signal(unix.SignalNum("SIG" + of))
	case "leaves":
		return s.leaves(cmd, of)
	default:
		return errors.New("no such step")
	}
}

// patience is for what comes at once on a machine that has time.
const patience = time.Minute

func (s *terminalScreen) see(pattern string) error {
	of, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if slices.ContainsFunc(s.shown(), of.MatchString) {
			return nil
		}
	}
	return errors.New("is not shown")
}

// leaves waits until the command has ended, and looks at what it leaves behind.
func (s *terminalScreen) leaves(cmd *exec.Cmd, code string) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			return err
		}
	case <-time.After(patience):
		return errors.New("it runs on")
	}
	if got := fmt.Sprint(cmd.ProcessState.ExitCode()); got != code {
		return fmt.Errorf("it has ended with %s", got)
	}
	now, err := unix.IoctlGetTermios(int(s.end.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	if *now != *s.before {
		return fmt.Errorf("the terminal is left as %+v, was %+v", *now, *s.before)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		all := s.all()
		began, left := bytes.LastIndex(all, []byte("\x1b[?1049h")), bytes.LastIndex(all, []byte("\x1b[?25h\x1b[?1049l"))
		if began < left || began < 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("the other screen is left on")
		}
	}
}

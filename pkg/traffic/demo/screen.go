package demo

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// screen shows the steps of a demo. On a terminal a step is shown and
// rewritten while it runs, elsewhere once it is over.
type screen struct {
	out      io.Writer
	terminal bool
	title    string
}

func newScreen(out io.Writer) *screen {
	file, isFile := out.(*os.File)
	if !isFile {
		return &screen{out: out}
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return &screen{out: out, terminal: err == nil}
}

// line writes a line. A writer that is gone ends the demo by SIGPIPE, so
// errors of it are not looked at here and below.
func (s *screen) line(text string) { _, _ = fmt.Fprintln(s.out, text) }

// begin shows that a step begins and returns what shows its end.
func (s *screen) begin(title string) (end func(ok bool, detail string)) {
	start := time.Now()
	s.title = title
	s.progress("")
	return func(ok bool, detail string) {
		mark := "✓"
		if !ok {
			mark = "✗"
		}
		text := title
		if detail != "" {
			text += ": " + detail
		}
		if s.terminal {
			_, _ = fmt.Fprint(s.out, "\r\033[K")
		}
		s.line(fmt.Sprintf("%s %-84s %7s", mark, text, seconds(time.Since(start))))
	}
}

// progress shows how far the present step is.
func (s *screen) progress(detail string) {
	if s.terminal {
		_, _ = fmt.Fprintf(s.out, "\r\033[K… %.70s %s", s.title, detail)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// thousands writes 12345 as "12,345".
func thousands(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// bar draws a share between 0 and 1 as a bar of at most width characters, in
// eighths of a character.
func bar(share float64, width int) string {
	eighths := int(math.Round(min(max(share, 0), 1) * float64(width) * 8))
	full := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		full += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return full
}

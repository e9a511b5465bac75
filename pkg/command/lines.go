package command

import (
	"bytes"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/headgate/headgate/pkg/lb"
)

// Lines writes rows one after the other, as they come: columns only become wider. The
// zero value has written none.
type Lines struct {
	// Screen is how many characters fit into a line, 0 for as many as there are. A row that is longer goes on in the
	// next line, below its second cell.
	Screen int
	widths []int
	line   []byte // that is being written
}

// LinesTo returns lines that fit the screen, where they are written to one.
func LinesTo(w io.Writer) Lines {
	var l Lines
	if f, ok := w.(*os.File); ok {
		l.Screen, _, _ = term.GetSize(int(f.Fd())) // 0 of what is no terminal
	}
	return l
}

// Empty says whether nothing was written.
func (l *Lines) Empty() bool { return l.widths == nil }

// fit makes columns as wide as the cells of a row, and two more.
func (l *Lines) fit(cells []string) {
	for i, c := range cells {
		if i == len(l.widths) {
			l.widths = append(l.widths, 0)
		}
		l.widths[i] = max(l.widths[i], utf8.RuneCountInString(lb.Printable(c))+2)
	}
}

// Write writes a row.
func (l *Lines) Write(w io.Writer, cells []string) error {
	l.fit(cells)
	l.line = l.line[:0]
	at := 0 // where in the line
	for i, c := range cells {
		c = lb.Printable(c)
		size := utf8.RuneCountInString(c)
		if at > l.widths[0] && l.Screen > 0 && at+size > l.Screen {
			l.line = append(bytes.TrimRight(l.line, " "), "\n"+strings.Repeat(" ", l.widths[0])...)
			at = l.widths[0]
		}
		l.line = append(l.line, c...)
		for range l.widths[i] - size {
			l.line = append(l.line, ' ')
		}
		at += l.widths[i]
	}
	l.line = append(bytes.TrimRight(l.line, " "), '\n')
	_, err := w.Write(l.line)
	return err
}

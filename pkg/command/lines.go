package command

import (
	"bytes"
	"io"
	"unicode/utf8"

	"github.com/headgate/headgate/pkg/lb"
)

// Lines writes rows one after the other, as they come: columns only become wider. The
// zero value has written none.
type Lines struct {
	widths []int
	line   []byte // that is being written
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
	for i, c := range cells {
		c = lb.Printable(c)
		l.line = append(l.line, c...)
		for range l.widths[i] - utf8.RuneCountInString(c) {
			l.line = append(l.line, ' ')
		}
	}
	l.line = append(bytes.TrimRight(l.line, " "), '\n')
	_, err := w.Write(l.line)
	return err
}

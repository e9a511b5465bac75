package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/pkg/lb"
)

// screenLine is a line of the screen.
type screenLine struct {
	text  string
	style style
}

// style is how a line stands out.
type style uint8

const (
	plain style = iota
	bold
	reverse
)

// frameLines are those of a frame that are no rows of its table: title, three of summary, header, keys.
const frameLines = 6

// frame returns what the screen shows: at most as many lines as it has, none longer than it is wide.
func (v *topView) frame() []screenLine {
	all := []screenLine{{v.headline(), bold}}
	p := v.pane()
	if v.look == nil {
		all = append(all, screenLine{"reading, for " + v.every.String(), plain})
	} else {
		sum, of := v.look.total(v.services.rows), v.inside
		if of == nil {
			of = sum
		}
		for _, line := range v.look.summary(of, v.began) {
			all = append(all, screenLine{line, plain})
		}
		all = append(all, screenLine{p.header(v.width), reverse})
		for i := p.first; i < min(p.first+v.room(), len(p.rows)); i++ {
			one := screenLine{p.row(p.rows[i], v.width), plain}
			if i == p.at {
				one.style = reverse
			}
			all = append(all, one)
		}
	}
	for len(all) < v.height-1 {
		all = append(all, screenLine{})
	}
	all = append(all[:max(min(len(all), v.height-1), 0)], v.footer())
	for i := range all {
		all[i].text = cut(lb.Printable(all[i].text), v.width)
	}
	return all[:min(len(all), v.height)]
}

// headline says what is shown, and when it was so. What is cut off first comes last.
func (v *topView) headline() string {
	parts := []string{"headgate top", v.pane().order()}
	ports := plural(len(v.items), "Service port", "Service ports")
	switch {
	case v.inside != nil:
		parts = []string{v.inside.title(), v.inside.Algorithm, v.pane().order()}
	case v.filter != "":
		parts = append(parts, fmt.Sprintf("%d of %s with %q", len(v.services.rows), ports, v.filter))
	case v.look != nil:
		parts = append(parts, ports)
	}
	if v.look != nil {
		parts = append(parts, v.look.node, v.look.at.Format(time.TimeOnly))
	}
	parts = append(parts, "every "+v.every.String())
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "  ")
}

// footer says what may be pressed, or what is typed, or what is wrong.
func (v *topView) footer() screenLine {
	p := v.pane()
	sorts := "sort: " + strings.Join(strings.Split(p.keys, ""), " ") + ", again: reverse"
	switch {
	case v.failure != "":
		return screenLine{"these figures are old: " + v.failure, bold}
	case v.typing:
		return screenLine{"/" + v.filter + "_   Enter keeps it, Esc shows all", bold}
	case v.inside != nil:
		return screenLine{"q end  Esc back  " + sorts, plain}
	default:
		return screenLine{"q end  Enter backends  / filter  " + sorts, plain}
	}
}

// header names the columns.
func (p *pane) header(width int) string {
	titles := make([]string, len(p.columns))
	for i := range titles {
		titles[i] = p.columns[i].title
	}
	return p.line(titles, width)
}

// order says by what the table is sorted.
func (p *pane) order() string {
	text := "by " + strings.ToLower(p.columns[p.by].title)
	if p.reversed {
		text += " reversed"
	}
	return text
}

// row returns one of the table.
func (p *pane) row(of item, width int) string {
	cells := make([]string, len(p.widths))
	for i := range cells {
		cells[i] = lines(p.columns[i].of(of))[0]
	}
	return p.line(cells, width)
}

// isText says whether a column has texts, which begin at its left: those that share what is
// left, and what stands behind the numbers.
func (p *pane) isText(i int) bool { return p.widths[i] == 0 || p.widths[i] >= 10 }

// leastColumns are those that every screen shows, and leastName what is left to the first of them.
const (
	leastColumns = 8
	leastName    = 22
)

// shown returns the widths of the columns for which a screen has room.
func (p *pane) shown(width int) []int {
	n := min(leastColumns, len(p.widths))
	width -= leastName
	for _, w := range p.widths[:n] {
		width -= w + 1
	}
	for n < len(p.widths) && width >= p.widths[n] {
		width -= p.widths[n] + 1
		n++
	}
	return p.widths[:n]
}

// line returns cells in their columns.
func (p *pane) line(cells []string, width int) string {
	left, sharing := width, 0
	widths := p.shown(width)
	for i, w := range widths {
		left -= w
		if i > 0 {
			left--
		}
		if w == 0 {
			sharing++
		}
	}
	var b strings.Builder
	for i, w := range widths {
		if w == 0 {
			if w = left / sharing; sharing > 1 {
				w = max(w, address)
			}
			left, sharing = left-w, sharing-1
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		cell := squeeze(cells[i], w)
		gap := strings.Repeat(" ", max(w-utf8.RuneCountInString(cell), 0))
		if p.isText(i) {
			b.WriteString(cell + gap)
		} else {
			b.WriteString(gap + cell)
		}
	}
	return b.String()
}

// address is how wide an address of IPv4 with its port may be: what a column of them has at least.
const address = len("255.255.255.255:65535")

// squeeze leaves out what is in the middle of a text that is too long: names differ at their ends.
func squeeze(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	if width < 3 {
		return string(runes[:max(width, 0)])
	}
	head := (width - 1) / 2
	return string(runes[:head]) + "~" + string(runes[len(runes)-(width-1-head):])
}

// cut leaves out the end of a line that is too long.
func cut(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:max(width-1, 0)]) + "~"[:min(max(width, 0), 1)]
	}
	return text
}

// ansi returns the frame as a terminal shows it, over what was there.
func ansi(frame []screenLine, width int) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range frame {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("\x1b[0m\x1b[K")
		if line.style != plain {
			b.WriteString(map[style]string{bold: "\x1b[1m", reverse: "\x1b[7m"}[line.style])
		}
		b.WriteString(line.text)
		if line.style == reverse {
			b.WriteString(strings.Repeat(" ", max(width-utf8.RuneCountInString(line.text), 0)))
		}
	}
	b.WriteString("\x1b[0m\x1b[J")
	return b.String()
}

package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// key is what a person presses: a character, or one of these.
type key rune

const (
	keyUp key = -1 - iota
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEnd
	keyEnter
	keyEscape
	keyBackspace
	keySuspend // Ctrl-Z
	keyQuit    // Ctrl-C
)

// topView is all that headgate top shows, and where in it a person is. What is pressed and what is
// read changes it; the frame follows from it alone.
type topView struct {
	width, height int // of the terminal
	every         time.Duration

	look    *trafficLook // nil before the first
	items   []item       // Service ports that were found
	failure string       // why the last look has failed, "" if it has not
	began   uint64       // ejections when this began

	filter string
	typing bool // the filter

	services, backends pane
	inside             *traffic // the Service port whose backends are shown, nil for the list
}

// pane is a table with a row that is chosen.
type pane struct {
	columns  []column[item]
	widths   []int // of the columns; 0 shares what is left. The last ones need a wide screen
	keys     string
	by       int // the column that sorts
	reversed bool
	rows     []item // in order
	first    int    // on the screen
	at       int    // the row that is chosen
	chosen   string // its name once a person has moved there: it stays chosen wherever it goes
}

// newTopView returns a view that has seen nothing.
func newTopView(g *grammar, by int, every time.Duration) *topView {
	return &topView{
		every:    every,
		services: pane{columns: g.columns, widths: []int{0, 7, 9, 9, 4, 7, 7, 8, 9, 9, 8, 9}, keys: "scirzyedtfan", by: by},
		backends: pane{columns: backendColumns.untyped().columns, widths: []int{0, 8, 9, 13, 10, 0}, keys: "bcitzp", by: 1},
	}
}

// saw takes what a look has found.
func (v *topView) saw(l *trafficLook, items []item) {
	if v.look == nil {
		v.began = l.ejections
	}
	v.look, v.items, v.failure = l, items, ""
	if v.inside != nil {
		v.enter(v.inside.title())
	}
	v.arrange()
}

// pane returns the table that is shown.
func (v *topView) pane() *pane {
	if v.inside != nil {
		return &v.backends
	}
	return &v.services
}

// arrange sorts and filters, and keeps the chosen row in sight.
func (v *topView) arrange() {
	p := v.pane()
	if v.look != nil && v.inside != nil {
		p.rows = v.look.backendsOf(v.inside)
	} else {
		p.rows = v.items
		if v.filter != "" {
			p.rows = slices.Clone(v.items)
			p.rows = slices.DeleteFunc(p.rows, func(i item) bool { return !strings.Contains(i.names()[0], v.filter) })
		}
	}
	p.rows = sorted(p.rows, p.columns[p.by], p.reversed)
	p.follow(v.room())
}

// room is how many rows the screen has for those of the table.
func (v *topView) room() int { return max(v.height-frameLines, 1) }

// follow finds the chosen row again, and has the screen begin where it is in sight.
func (p *pane) follow(room int) {
	if i := slices.IndexFunc(p.rows, func(i item) bool { return i.names()[0] == p.chosen }); i >= 0 {
		p.at = i
	}
	p.at = max(min(p.at, len(p.rows)-1), 0)
	p.first = max(min(p.first, p.at, len(p.rows)-room), p.at-room+1, 0)
}

// sorted returns rows by a column: numbers begin with the largest, texts with the first.
func sorted(rows []item, by column[item], reversed bool) []item {
	type keyed struct {
		number float64
		known  bool
		text   string
		row    item
	}
	all := make([]keyed, len(rows))
	for i, row := range rows {
		cell := by.of(row)
		all[i].row = row
		if all[i].number, all[i].known = asNumber(cell); !all[i].known && cell != nil {
			all[i].text = lines(cell)[0]
		}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		order := cmp.Compare(b.number, a.number)
		if a.known != b.known {
			return map[bool]int{true: -1, false: 1}[a.known] // what is not known comes last
		}
		if order == 0 {
			order = strings.Compare(a.text, b.text)
		}
		if reversed {
			return -order
		}
		return order
	})
	out := make([]item, len(all))
	for i := range all {
		out[i] = all[i].row
	}
	return out
}

// press does what a key asks for, and says whether that is to end.
func (v *topView) press(k key) (ends bool) {
	p := v.pane()
	switch {
	case k == keyQuit:
		return true
	case v.typing:
		v.edit(k)
	case k == 'q':
		return true
	case k == '/' && v.inside == nil:
		v.typing = true
	case k == keyEscape || k == keyBackspace:
		v.back()
	case k == keyEnter && v.inside == nil && len(p.rows) > 0:
		p.choose(p.at)
		v.backends.at, v.backends.chosen = 0, ""
		v.enter(p.chosen)
	case k > 0 && strings.ContainsRune(p.keys, rune(k)):
		by := strings.IndexRune(p.keys, rune(k))
		p.by, p.reversed = by, by == p.by && !p.reversed
	default:
		p.move(k, v.room())
	}
	v.arrange()
	return false
}

// edit changes the filter.
func (v *topView) edit(k key) {
	switch {
	case k == keyEnter:
		v.typing = false
	case k == keyEscape:
		v.typing, v.filter = false, ""
	case k == keyBackspace:
		_, size := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-size]
	case k > 0 && unicode.IsPrint(rune(k)):
		v.filter += string(rune(k))
	}
}

// back leaves the backends, or else the filter.
func (v *topView) back() {
	if v.inside != nil {
		v.inside = nil
		return
	}
	v.filter = ""
}

// enter shows the backends of a Service port. One that is gone has none.
func (v *topView) enter(name string) {
	for _, i := range v.items {
		if t := i.(*traffic); t.title() == name {
			v.inside = t
			return
		}
	}
	if v.inside != nil {
		gone := traffic{service: &service{port: v.inside.port}}
		gone.judge(v.look, healths{})
		v.inside = &gone
	}
}

// choose marks a row, which stays so wherever it goes.
func (p *pane) choose(at int) {
	if len(p.rows) > 0 {
		p.at = max(min(at, len(p.rows)-1), 0)
		p.chosen = p.rows[p.at].names()[0]
	}
}

// move goes to another row. Other keys mean nothing.
func (p *pane) move(k key, room int) {
	switch k {
	case keyUp, 'k':
		p.choose(p.at - 1)
	case keyDown, 'j':
		p.choose(p.at + 1)
	case keyPageUp:
		p.choose(p.at - room)
	case keyPageDown:
		p.choose(p.at + room)
	case keyHome, 'g':
		p.first, p.at, p.chosen = 0, 0, ""
	case keyEnd, 'G':
		p.choose(len(p.rows) - 1)
	}
}

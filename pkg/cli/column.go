package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/lb"
)

// column is something that is said of each item.
type column[T any] struct {
	title string // with the unit, as in "MEMORY KiB"
	// of returns text, a list of texts that stand one below the other, a number, a
	// duration, or nil for what is not known.
	of    func(T) any
	wide  bool // it is shown only where all is
	rated bool // it takes two readings, and is shown only where there are
}

// table returns items as they are printed.
func (n *grammar) table(o command.Output, each func(do func(item) error) error) command.Table {
	var row []string
	return command.Table{Header: n.header(o.IsWide()), Stream: &command.Stream{
		Kind: n.kind,
		Each: func(do func(any) error) error { return each(func(one item) error { return do(one) }) },
		Name: func(one any) string { return n.name + "/" + one.(item).names()[0] },
		Rows: func(one any, do func([]string)) {
			more := false
			if row, more = n.firstRow(one.(item), o.IsWide(), row[:0]); !more {
				do(row)
				return
			}
			for _, r := range n.rows(one.(item), o.IsWide()) {
				do(r)
			}
		},
	}}
}

// firstRow appends the first line of an item to a row, and says whether it has more. Nearly all have one, which needs no
// memory of its own.
func (n *grammar) firstRow(one item, wide bool, row []string) (_ []string, more bool) {
	for _, c := range n.columns {
		if wide || !c.wide {
			first, several := firstLine(c.of(one))
			row, more = append(row, first), more || several
		}
	}
	return row, more
}

// firstLine returns the first line of a cell, and whether it has more.
func firstLine(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, false
	case int:
		return strconv.Itoa(v), false
	case uint32:
		return strconv.FormatUint(uint64(v), 10), false
	case uint64:
		return strconv.FormatUint(v, 10), false
	case fmt.Stringer:
		return v.String(), false
	}
	all := lines(value)
	return all[0], len(all) > 1
}

func (n *grammar) header(wide bool) (titles []string) {
	for _, c := range n.columns {
		if wide || !c.wide {
			titles = append(titles, c.title)
		}
	}
	return titles
}

// rows returns the lines of an item: as many as the longest list in it.
func (n *grammar) rows(one item, wide bool) (rows [][]string) {
	var cells [][]string
	height := 1
	for _, c := range n.columns {
		if wide || !c.wide {
			text := lines(c.of(one))
			cells, height = append(cells, text), max(height, len(text))
		}
	}
	for i := range height {
		row := make([]string, len(cells))
		for c, text := range cells {
			if i < len(text) {
				row[c] = text[i]
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// lines returns the lines of a cell; "-" stands for what is not known.
func lines(value any) []string {
	switch v := value.(type) {
	case nil:
		return []string{"-"}
	case []string:
		if len(v) == 0 {
			return []string{""}
		}
		return v
	case time.Duration:
		return []string{v.String()}
	default:
		return []string{fmt.Sprint(v)}
	}
}

// titles returns the columns as --sort-by takes them.
func (n *grammar) titles() (titles []string) {
	for _, c := range n.columns {
		titles = append(titles, sortName(c.title))
	}
	return titles
}

func sortName(title string) string {
	return strings.ReplaceAll(strings.ToLower(title), " ", "-")
}

// order returns how to sort by a column, nil for the order in which things are read.
func (n *grammar) order(by string) (func(a, b item) int, error) {
	if by == "" {
		return nil, nil
	}
	for _, c := range n.columns {
		if sortName(c.title) == sortName(by) {
			return func(a, b item) int { return compareCells(c.of(a), c.of(b)) }, nil
		}
	}
	return nil, fmt.Errorf("--sort-by %s: no such column; write one of %s", lb.Quote(by), strings.Join(n.titles(), ", "))
}

// compareCells orders numbers with the largest first, and texts behind them; what is not known comes last.
func compareCells(a, b any) int {
	x, isNumber := asNumber(a)
	y, areBoth := asNumber(b)
	switch {
	case isNumber && areBoth:
		return cmp.Compare(y, x)
	case isNumber || b == nil && a != nil:
		return -1
	case areBoth || a == nil && b != nil:
		return 1
	default:
		return cmp.Compare(lines(a)[0], lines(b)[0])
	}
}

func asNumber(cell any) (float64, bool) {
	switch v := reflect.ValueOf(cell); {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	case v.CanFloat():
		return v.Float(), true
	default:
		return 0, false
	}
}

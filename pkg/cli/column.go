package cli

import (
	"cmp"
	"fmt"
	"iter"
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
func (n *grammar) table(items []item, o command.Output) command.Table {
	t := command.Table{Header: n.header(o.IsWide()), Each: n.each(items, o.IsWide()), Value: command.ListOf(n.kind, items)}
	if o.WantsNames() {
		for _, one := range items {
			t.Names = append(t.Names, n.name+"/"+one.names()[0])
		}
	}
	return t
}

// each returns the rows of items. Nearly all have one, which needs no memory of its own.
func (n *grammar) each(items []item, wide bool) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		var row []string
		for _, one := range items {
			more := false
			row = row[:0]
			for _, c := range n.columns {
				if wide || !c.wide {
					first, several := firstLine(c.of(one))
					row, more = append(row, first), more || several
				}
			}
			rows := [][]string{row}
			if more {
				rows = n.rows(one, wide)
			}
			for _, r := range rows {
				if !yield(r) {
					return
				}
			}
		}
	}
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

// compareCells orders numbers, durations and texts; what is not known comes first.
func compareCells(a, b any) int {
	x, isNumber := asNumber(a)
	y, areBoth := asNumber(b)
	if isNumber && areBoth {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(lines(a)[0], lines(b)[0])
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

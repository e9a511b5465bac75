package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// report is everything that a run has found out.
type report struct {
	Machine machine           `json:"machine"`
	Command string            `json:"command"`
	Quick   bool              `json:"quick"`
	Took    string            `json:"took"`
	Failed  []string          `json:"failed,omitempty"` // sections that are missing, and why
	Rounds  int               `json:"rounds"`
	Clock   int64             `json:"clock_ns"` // taken from every call that is timed
	Figures map[string]figure `json:"figures"`
	Tables  []table           `json:"-"`
	plan    effort
	missed  []string // keys of figures that miss their aim
}

// figure is a number with its unit. Without rounds the quartiles are the
// number itself.
type figure struct {
	Unit string `json:"unit,omitempty"`
	stat
}

// table is what people read.
type table struct {
	Title  string
	Note   string
	Header []string
	Rows   [][]string
}

func (t *table) row(cells ...string) { t.Rows = append(t.Rows, cells) }

func newReport(o options) *report {
	return &report{
		Machine: thisMachine(o.repo), Command: strings.TrimSpace(fmt.Sprintf("sudo make bench BENCH_ARGS=%q", strings.Join(o.args, " "))),
		Quick: o.quick, Rounds: o.plan.rounds, Clock: clockCost, Figures: map[string]figure{}, plan: o.plan,
	}
}

func (r *report) add(key, unit string, s stat) { r.Figures[key] = figure{unit, s} }

func (r *report) value(key, unit string, v float64) { r.add(key, unit, stat{v, v, v, v}) }

func (r *report) table(t table) { r.Tables = append(r.Tables, t) }

// finish notes how the run ended.
func (r *report) finish(o options, took time.Duration) {
	r.Took, r.Machine.LoadEnd = took.Round(time.Second).String(), loadAverage()
}

// write writes the files that were asked for.
func (r *report) write(o options) error {
	if o.json != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := writeFile(o.json, append(text, '\n')); err != nil {
			return err
		}
	}
	if o.markdown == "" {
		return nil
	}
	return writeFile(o.markdown, []byte(r.markdown()))
}

func writeFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// text is the table for a terminal.
func (t table) text() string {
	widths := make([]int, len(t.Header))
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", t.Title)
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				fmt.Fprintf(&b, "  %s%s", cell, pad)
			} else {
				fmt.Fprintf(&b, "  %s%s", pad, cell)
			}
		}
		b.WriteString("\n")
	}
	if t.Note != "" {
		fmt.Fprintf(&b, "  %s\n", t.Note)
	}
	return b.String()
}

// ns prints the median of nanoseconds.
func ns(s stat) string { return fmt.Sprintf("%.0f", s.Median) }

// spread prints the quartiles.
func spread(s stat) string { return fmt.Sprintf("%.0f … %.0f", s.Low, s.High) }

func us(v float64) string { return fmt.Sprintf("%.0f", v) }

func tenth(v float64) string { return fmt.Sprintf("%.1f", v) }

func tenths(s stat) string { return tenth(s.Low) + " … " + tenth(s.High) }

// count prints a number with commas, as in 10,000.
func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

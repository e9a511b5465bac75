package main

import (
	"regexp"
	"strings"
)

// Headings and words of the page, by which it is read again.
const (
	headingNotes = "## Not passed at first"
	headingLeft  = "## What the lab cannot run"
	notRun       = "not run"
)

// Lines of the page, by what they are.
var (
	lineAbout = regexp.MustCompile(`^(.+ on Linux \S+, \d{4}-\d\d-\d\d)[;.]$`)
	lineNote  = regexp.MustCompile(`^- ([^:]+): (?:\*\*\w+\*\*, also alone: )?(.*)$`)
	lineRow   = regexp.MustCompile(`^\| (.*) \|$`)
)

// readTable returns the table that a page shows, an empty one of a page without.
func readTable(page string) *table {
	t := newTable()
	table, rest, _ := strings.Cut(page, headingNotes)
	notes, left, _ := strings.Cut(rest, headingLeft)
	t.readCells(table)
	for line := range strings.Lines(notes) {
		if m := lineNote.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			at := place{proxyTitled(m[1]).name, groupOf(m[2]).name}
			t.notes[at] = append(t.notes[at], m[0])
		}
	}
	for line := range strings.Lines(left) {
		line = strings.TrimSpace(line)
		if cells := cellsOf(line); cells != nil && cells[0] != "test" {
			g := groupOf(cells[0])
			t.left[g.name] = append(t.left[g.name], line)
		}
	}
	return t
}

// readCells reads what was judged, and the rows of groups.
func (t *table) readCells(text string) {
	var titles []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := lineAbout.FindStringSubmatch(line); m != nil {
			t.about = append(t.about, m[1])
		}
		cells := cellsOf(line)
		if cells == nil {
			continue
		}
		if cells[0] == "group" {
			titles = cells
			continue
		}
		for _, g := range groups {
			for i, title := range titles {
				if i > 0 && g.title == cells[0] && i < len(cells) {
					t.cells[place{proxyTitled(title).name, g.name}] = cells[i]
				}
			}
		}
	}
}

// cellsOf returns the cells of a row, nil for another line.
func cellsOf(line string) []string {
	m := lineRow.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	return strings.Split(m[1], " | ")
}

func proxyTitled(title string) proxy {
	for _, p := range proxies {
		if p.title == title {
			return p
		}
	}
	return proxy{}
}

// groupOf returns the group of the test that a line begins with.
func groupOf(line string) group {
	for _, g := range groups {
		if g.has("[sig-network] " + line) {
			return g
		}
	}
	return group{}
}

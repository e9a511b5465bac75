package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A record is what a group did with a proxy.
type record struct {
	Date    string
	Version string // of Headgate
	Kernel  string
	Results []result
	Left    []result // what the lab cannot run
}

func (l *lab) recordFile(proxy, group string) string {
	return filepath.Join(l.Cache, "results", proxy, group+".json")
}

// kernelVersion is what of a release says which kernel it is, without whose build.
var kernelVersion = regexp.MustCompile(`^\d+\.\d+`)

func (l *lab) record(g group, results, left []result) error {
	r := record{Date: time.Now().UTC().Format(time.DateOnly), Version: l.Version, Kernel: kernelVersion.FindString(said("uname", "-r")), Results: results, Left: left}
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(l.recordFile(l.Proxy, g.name), data, 0o644)
}

func said(argv ...string) string {
	out, _ := exec.Command(argv[0], argv[1:]...).Output()
	return strings.TrimSpace(string(out))
}

func (l *lab) readRecord(proxy, group string) (*record, error) {
	data, err := os.ReadFile(l.recordFile(proxy, group))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	return r, json.Unmarshal(data, r)
}

// report writes the table: what the cache has, and what the page says already of what it
// has not, since it may be that of another machine.
func (l *lab) report() error {
	page, err := os.ReadFile(l.Out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	t := readTable(string(page))
	for _, p := range proxies {
		for _, g := range groups {
			r, err := l.readRecord(p.name, g.name)
			if err != nil {
				return err
			}
			if r != nil {
				t.add(p, g, *r)
			}
		}
	}
	return os.WriteFile(l.Out, []byte(t.markdown()), 0o644)
}

// place is a cell of the table.
type place struct{ proxy, group string }

// table is what docs/conformance.md shows.
type table struct {
	cells map[place]string
	notes map[place][]string  // what did not pass at first
	left  map[string][]string // by group
	about []string            // what was judged, and where
}

func newTable() *table {
	return &table{cells: map[place]string{}, notes: map[place][]string{}, left: map[string][]string{}}
}

// add puts what a group did with a proxy in the place of what the table had of it.
func (t *table) add(p proxy, g group, r record) {
	at := place{p.name, g.name}
	t.notes[at] = nil
	passed, asked := 0, 0
	for _, res := range r.Results {
		if res.Status == "skipped" {
			t.leave(g, res)
			continue
		}
		asked++
		if !res.failed() {
			passed++
		}
		if res.failed() || res.First != "" {
			t.notes[at] = append(t.notes[at], note(p.title, res))
		}
	}
	for _, res := range r.Left {
		t.leave(g, res)
	}
	t.cells[at] = fmt.Sprintf("%d of %d", passed, asked)
	if p.how != byKubeProxy {
		addOnce(&t.about, fmt.Sprintf("%s %s on Linux %s, %s", p.title, r.Version, r.Kernel, r.Date))
	}
}

func addOnce(all *[]string, line string) {
	if !slices.Contains(*all, line) {
		*all = append(*all, line)
	}
}

func note(title string, r result) string {
	if !r.failed() {
		return fmt.Sprintf("- %s: %s: passed when run alone; beside others it failed with: %s", title, plainName(r.Name), short(r.First))
	}
	return fmt.Sprintf("- %s: **%s**, also alone: %s: %s", title, r.Status, plainName(r.Name), short(r.Reason))
}

// leave notes once that the lab cannot run a test.
func (t *table) leave(g group, r result) {
	lines := t.left[g.name]
	addOnce(&lines, fmt.Sprintf("| %s | %s |", plainName(r.Name), short(r.Reason)))
	t.left[g.name] = lines
}

// plainName is a test's name without what makes a table of names wide.
func plainName(name string) string {
	return strings.ReplaceAll(strings.TrimPrefix(name, "[sig-network] "), "|", `\|`)
}

func short(reason string) string {
	if r := []rune(reason); len(r) > 160 {
		reason = string(r[:160]) + "…"
	}
	return strings.ReplaceAll(strings.ReplaceAll(reason, "|", `\|`), "<", `\<`)
}

func (t *table) markdown() string {
	var b strings.Builder
	data, _ := files.ReadFile("files/conformance.md")
	b.Write(data)
	fmt.Fprintf(&b, "\n%s.\n\n", strings.Join(t.about, ";\n"))
	t.rows(&b)
	b.WriteString("\n" + headingNotes + "\n\n")
	var notes []string
	for _, g := range groups {
		for _, p := range proxies {
			notes = append(notes, t.notes[place{p.name, g.name}]...)
		}
	}
	if len(notes) == 0 {
		notes = []string{"Nothing."}
	}
	b.WriteString(strings.Join(notes, "\n") + "\n")
	b.WriteString("\n" + headingLeft + "\n\n| test | reason |\n|---|---|\n")
	for _, g := range groups {
		for _, line := range t.left[g.name] {
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

// rows writes the cells, with a column for each proxy that was judged.
func (t *table) rows(b *strings.Builder) {
	columns := slices.DeleteFunc(slices.Clone(proxies), func(p proxy) bool {
		return !slices.ContainsFunc(groups, func(g group) bool { return t.cells[place{p.name, g.name}] != "" })
	})
	b.WriteString("| group |")
	for _, p := range columns {
		fmt.Fprintf(b, " %s |", p.title)
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, g := range groups {
		fmt.Fprintf(b, "| %s |", g.title)
		for _, p := range columns {
			fmt.Fprintf(b, " %s |", cmp.Or(t.cells[place{p.name, g.name}], notRun))
		}
		b.WriteString("\n")
	}
}

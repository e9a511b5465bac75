package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

func (l *lab) record(g group, results, left []result) error {
	r := record{Date: time.Now().UTC().Format(time.DateOnly), Version: l.Version, Kernel: said("uname", "-r"), Results: results, Left: left}
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

// columns are the proxies of the table.
var columns = []struct{ proxy, title string }{
	{"nftables", "kube-proxy nftables"}, {"iptables", "kube-proxy iptables"},
	{"headgate", "Headgate"}, {"headgate-image", "Headgate, the image by deploy/"},
}

// report writes the table of all results that the cache has.
func (l *lab) report() error {
	t := &table{}
	for _, c := range columns {
		for _, g := range groups {
			r, err := l.readRecord(c.proxy, g.name)
			if err != nil {
				return err
			}
			t.add(c.proxy, c.title, g, r)
		}
	}
	return os.WriteFile(l.Out, []byte(t.markdown()), 0o644)
}

// table is what docs/conformance.md shows.
type table struct {
	titles  []string
	columns []string
	cells   map[[2]string]string // proxy and group
	notes   map[string][]string  // by group
	left    map[string][]string
	about   []string // what was judged, and where
}

func (t *table) add(proxy, title string, g group, r *record) {
	if r == nil {
		return
	}
	if t.cells == nil {
		t.cells, t.notes, t.left = map[[2]string]string{}, map[string][]string{}, map[string][]string{}
	}
	if len(t.columns) == 0 || t.columns[len(t.columns)-1] != proxy {
		t.columns, t.titles = append(t.columns, proxy), append(t.titles, title)
	}
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
			t.notes[g.name] = append(t.notes[g.name], note(title, res))
		}
	}
	for _, res := range r.Left {
		t.leave(g, res)
	}
	t.cells[[2]string{proxy, g.name}] = fmt.Sprintf("%d of %d", passed, asked)
	if strings.HasPrefix(proxy, "headgate") {
		if line := fmt.Sprintf("Headgate %s on Linux %s, %s", r.Version, r.Kernel, r.Date); !slices.Contains(t.about, line) {
			t.about = append(t.about, line)
		}
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
	line := fmt.Sprintf("| %s | %s |", plainName(r.Name), short(r.Reason))
	for _, have := range t.left[g.name] {
		if have == line {
			return
		}
	}
	t.left[g.name] = append(t.left[g.name], line)
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
	fmt.Fprintf(&b, "\n%s.\n\n| group | %s |\n|---|%s\n", strings.Join(t.about, ";\n"), strings.Join(t.titles, " | "), strings.Repeat("---|", len(t.titles)))
	for _, g := range groups {
		fmt.Fprintf(&b, "| %s |", g.title)
		for _, c := range t.columns {
			cell := t.cells[[2]string{c, g.name}]
			if cell == "" {
				cell = "not run"
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## Not passed at first\n\n")
	empty := true
	for _, g := range groups {
		for _, line := range t.notes[g.name] {
			empty = false
			fmt.Fprintln(&b, line)
		}
	}
	if empty {
		b.WriteString("Nothing.\n")
	}
	b.WriteString("\n## What the lab cannot run\n\n| test | reason |\n|---|---|\n")
	for _, g := range groups {
		for _, line := range t.left[g.name] {
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

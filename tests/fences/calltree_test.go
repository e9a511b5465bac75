package fences

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The trees of bpf/README.md, and how many lines may be on a page.
var (
	treesOf  = []string{"connect4", "begin_flow", "find_home", "to_outside", "carry", "decide", "device_in", "device_out", "uplink"}
	pageMost = 64
)

var (
	treeLine = regexp.MustCompile(`^((?:  )*)(\w+)( …)?\s+(\S+\.[hc])(?:\s|$)`)
	codeText = regexp.MustCompile("(?ms)^```\n(.*?)^```$")
)

// branch is a function of a call tree, with those that it calls.
type branch struct {
	name, file string
	before     bool // what else it calls stands in a tree before
	calls      []*branch
}

func TestTheCallTreesAreThoseOfTheCode(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "bpf/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range wrongTrees(string(text), functionsOf(mustReadAll(t)), treesOf) {
		t.Error(complaint)
	}
}

func TestWrongCallTreesAreReported(t *testing.T) {
	functions := functionsOf([]file{
		{"bpf/headgate.bpf.c", []byte("int in(struct x *c)\n{\n\treturn step(c);\n}\n\nint out(struct x *c)\n{\n\treturn step(c);\n}\n")},
		{"bpf/tc/a.h", []byte("GLOBAL_FUNC int step(struct x *c)\n{\n\tlead(c);\n\treturn detail(c);\n}\n" +
			"static __always_inline int lead(struct x *c)\n{\n\treturn bpf_loop(1, each, c, 0);\n}\n" +
			"static long each(__u32 i, void *c)\n{\n\treturn last(c); /* other() */\n}\n")},
		{"bpf/tc/b.h", []byte("static __always_inline enum verdict\nlast(struct x *c)\n{\n\treturn refuse(c);\n}\n" +
			"static int detail(struct x *c)\n{\n\treturn 0;\n}\n")},
		{"bpf/lib/c.h", []byte("static enum verdict refuse(struct x *c)\n{\n\treturn 0;\n}\n")},
	})
	const whole = "in headgate.bpf.c a packet\n  step tc/a.h s\n    lead tc/a.h s\n      each tc/a.h s\n        last tc/b.h s\n"
	for text, want := range map[string][]string{
		"```\n" + whole + "```\n":                                                   nil,
		"```\n" + whole + "    detail tc/b.h s\n```\n":                              nil,
		"```\n" + whole + "  last tc/b.h s\n```\n":                                  {"in: in does not call last"},
		"```\n" + strings.Replace(whole, "last tc/b.h", "last tc/a.h", 1) + "```\n": {"in: last is in tc/b.h, not in tc/a.h"},
		"```\n" + strings.Replace(whole, "last", "lost", 1) + "```\n":               {"in: there is no function lost", "in: last is missing"},
		"```\nin headgate.bpf.c a packet\n  step tc/a.h s\n```\n":                   {"in: lead is missing", "in: each is missing", "in: last is missing"},
		"```\nin headgate.bpf.c a packet\n  step … tc/a.h s\n```\n":                 {"in: lead is missing", "in: each is missing", "in: last is missing"},
		"```\nin\n```\n": {`"in": no function and file`},
		"```\nin headgate.bpf.c a\n    step tc/a.h s\n```\n": {`"    step tc/a.h s": is indented too far`},
		"nothing": {"there is no tree of in"},
	} {
		if diff := cmp.Diff(want, wrongTrees(text, functions, []string{"in"})); diff != "" {
			t.Errorf("wrongTrees(%q) (-want +got):\n%s", text, diff)
		}
	}
	again := "```\n" + whole + "```\n```\nout headgate.bpf.c a packet\n  step tc/a.h s\n    lead … tc/a.h s\n```\n" +
		"```\nend headgate.bpf.c a packet\n  step … tc/a.h s\n```\n"
	functions["end"] = &function{file: "headgate.bpf.c", calls: []string{"step"}}
	if got := wrongTrees(again, functions, []string{"in", "out", "end"}); got != nil {
		t.Errorf("trees that refer to others: %q", got)
	}
}

// wrongTrees is a line for whatever the call trees in a text say that is not so, and
// for each step that is missing. A step is a function of lb, sock or tc that says what
// becomes of a packet or a connection, or that the verifier looks at by itself. A
// tree has every step that its entry point reaches, and what leads there.
func wrongTrees(text string, functions map[string]*function, roots []string) (complaints []string) {
	trees := map[string]*branch{}
	var before []*branch
	for _, m := range codeText.FindAllStringSubmatch(text, -1) {
		if first := strings.Fields(m[1] + " .")[0]; !slices.Contains(roots, first) {
			continue
		}
		tree, err := readTree(m[1])
		if err != nil {
			complaints = append(complaints, err.Error())
			trees[strings.Fields(m[1])[0]] = &branch{}
			continue
		}
		trees[tree.name] = tree
		complaints = append(complaints, tree.wrong(tree.name, functions)...)
		for _, name := range missing(tree, functions, before) {
			complaints = append(complaints, fmt.Sprintf("%s: %s is missing", tree.name, name))
		}
		if n := strings.Count(m[1], "\n"); n > pageMost {
			complaints = append(complaints, fmt.Sprintf("%s: %d lines, at most %d", tree.name, n, pageMost))
		}
		before = append(before, tree)
	}
	for _, name := range roots {
		if trees[name] == nil {
			complaints = append(complaints, "there is no tree of "+name)
		}
	}
	return complaints
}

// readTree reads a tree, of which each line is a function, its file and, if needed, what it does.
func readTree(text string) (*branch, error) {
	var way []*branch
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		m := treeLine.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%q: no function and file", line)
		}
		b, depth := &branch{name: m[2], file: m[4], before: m[3] != ""}, len(m[1])/2
		if depth > len(way) || depth == 0 && way != nil {
			return nil, fmt.Errorf("%q: is indented too far", line)
		}
		if way = append(way[:depth], b); depth > 0 {
			way[depth-1].calls = append(way[depth-1].calls, b)
		}
	}
	return way[0], nil
}

// wrong is a line for each branch that is not in the code.
func (b *branch) wrong(tree string, functions map[string]*function) (complaints []string) {
	f := functions[b.name]
	switch {
	case f == nil:
		return []string{fmt.Sprintf("%s: there is no function %s", tree, b.name)}
	case f.file != b.file:
		complaints = append(complaints, fmt.Sprintf("%s: %s is in %s, not in %s", tree, b.name, f.file, b.file))
	}
	for _, c := range b.calls {
		if functions[c.name] != nil && !slices.Contains(f.calls, c.name) {
			complaints = append(complaints, fmt.Sprintf("%s: %s does not call %s", tree, b.name, c.name))
		}
		complaints = append(complaints, c.wrong(tree, functions)...)
	}
	return complaints
}

// each calls a function with a branch and all below it.
func (b *branch) each(do func(*branch)) {
	do(b)
	for _, c := range b.calls {
		c.each(do)
	}
}

// missing is the functions that a tree lacks and that no tree before has in its place.
func missing(tree *branch, functions map[string]*function, before []*branch) (names []string) {
	has, referred := map[string]bool{}, map[string]bool{}
	var note func(b *branch)
	note = func(b *branch) {
		has[b.name] = true
		if !b.before || referred[b.name] {
			return
		}
		referred[b.name] = true
		for _, other := range before {
			other.each(func(same *branch) {
				if same.name == b.name {
					same.each(note)
				}
			})
		}
	}
	tree.each(note)
	for _, name := range needed(tree.name, functions) {
		if !has[name] {
			names = append(names, name)
		}
	}
	return names
}

// needed is the steps that a function reaches, and what leads to them.
func needed(from string, functions map[string]*function) (names []string) {
	leads := map[string]bool{}
	var visit func(name string) bool
	visit = func(name string) bool {
		f := functions[name]
		if strings.HasPrefix(f.file, "lib/") || strings.HasPrefix(f.file, "flow/") {
			return false
		}
		if lead, visited := leads[name]; visited {
			return lead
		}
		at := len(names)
		lead := strings.Contains(f.signature, "GLOBAL_FUNC ") || strings.Contains(f.signature, "enum verdict")
		leads[name] = lead
		for _, c := range f.calls {
			lead = visit(c) || lead
		}
		if leads[name] = lead; lead {
			names = slices.Insert(names, at, name)
		}
		return lead
	}
	visit(from)
	return names
}

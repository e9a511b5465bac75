package fences

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pages are those that lead to files.
var pages = []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "bpf/README.md"}

var (
	// namedPath matches a path of the repository in a page; "…/*" is a pattern.
	namedPath = regexp.MustCompile("`((?:bpf|cmd|deploy|docs|examples|pkg|tests)/[\\w./*-]+)`")
	// namedFile matches a file among them.
	namedFile = regexp.MustCompile("`(?:bpf|pkg)/[\\w./-]+\\.(?:h|c|go)`")
	walkTitle = regexp.MustCompile(`(?m)^## The walk of .*$`)
	stepStart = regexp.MustCompile(`(?m)^\d+\. `)
)

func TestPagesNameFilesThatExist(t *testing.T) {
	for _, page := range pages {
		for _, complaint := range missingFiles(page, mustReadPage(t, page)) {
			t.Error(complaint)
		}
	}
}

func TestEveryStepOfAWalkNamesItsFile(t *testing.T) {
	text := mustReadPage(t, "ARCHITECTURE.md")
	if walks := walkTitle.FindAllString(text, -1); len(walks) != 2 {
		t.Errorf("ARCHITECTURE.md has the walks %q, want those of a connection and of a packet", walks)
	}
	for _, complaint := range stepsWithoutFile(text) {
		t.Error(complaint)
	}
}

func TestPagesThatLeadNowhereAreReported(t *testing.T) {
	text := "`tests/fences/pages_test.go` `pkg/lb` `tests/fences/*.go` `pkg/no/file.go` `tests/fences/*.h` `no/path.go` `make x`"
	want := []string{"x.md: there is no pkg/no/file.go", "x.md: there is no tests/fences/*.h"}
	if diff := cmp.Diff(want, missingFiles("x.md", text)); diff != "" {
		t.Errorf("missingFiles (-want +got):\n%s", diff)
	}
	text = "1. before\n## The walk of a thing\n1. one `bpf/a/b.h`\n2. two\n   goes on\n3. three\n   (`pkg/c.go`)\n\nelse\n## After\n1. after\n"
	want = []string{"the step names no file: 2. two"}
	if diff := cmp.Diff(want, stepsWithoutFile(text)); diff != "" {
		t.Errorf("stepsWithoutFile (-want +got):\n%s", diff)
	}
}

func mustReadPage(tb testing.TB, page string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// missingFiles returns a line for each path of a page that leads nowhere.
func missingFiles(page, text string) (complaints []string) {
	for _, match := range namedPath.FindAllStringSubmatch(text, -1) {
		if found, err := filepath.Glob(filepath.Join(root, match[1])); err != nil || len(found) == 0 {
			complaints = append(complaints, fmt.Sprintf("%s: there is no %s", page, match[1]))
		}
	}
	return complaints
}

// stepsWithoutFile returns a line for each numbered step of a walk in which no file
// is named.
func stepsWithoutFile(text string) (complaints []string) {
	for _, title := range walkTitle.FindAllStringIndex(text, -1) {
		walk, _, _ := strings.Cut(text[title[1]:], "\n## ")
		starts := stepStart.FindAllStringIndex(walk, -1)
		for i, start := range starts {
			end := len(walk)
			if i+1 < len(starts) {
				end = starts[i+1][0]
			}
			step, _, _ := strings.Cut(walk[start[0]:end], "\n\n")
			if !namedFile.MatchString(step) {
				first, _, _ := strings.Cut(step, "\n")
				complaints = append(complaints, "the step names no file: "+first)
			}
		}
	}
	return complaints
}

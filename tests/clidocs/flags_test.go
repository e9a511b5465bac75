package clidocs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/pkg/kubectl"
	bench "github.com/headgate/headgate/pkg/traffic/cli"
)

// ofOthers are flags that pages name of other programs.
var ofOthers = []string{
	"cascade", "container", "for", "previous", "timeout", // kubectl
	"reuse-values", "reset-then-reuse-values", "set", // helm
	"net",                                                           // nsenter
	"now",                                                           // systemctl
	"dst-nat",                                                       // conntrack
	"max-endpoints-per-slice", "endpointslice-updates-batch-period", // kube-controller-manager
}

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	span   = regexp.MustCompile("`[^`\n]+`")
	flagIn = regexp.MustCompile(`(?:^|[ \x60\[(])--([a-z][a-z0-9-]*)`)
)

// A page that names a flag which is gone, or misspelt, leads people astray.
func TestPagesNameFlagsThatThereAre(t *testing.T) {
	known := slices.Concat(flagsOf(headgate(t)), flagsOf(bench.Command("VERSION")), kubectl.Flags())
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range append(pages, root+"/README.md", root+"/ARCHITECTURE.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, complaint := range unknownFlags(string(text), slices.Concat(known, ofOthers)) {
			t.Errorf("%s: %s", filepath.Base(page), complaint)
		}
	}
}

func TestFlagsThatThereAreNotAreReported(t *testing.T) {
	text := "`--flows` `--flowz` `--flows 5`\n\n```\nhelm --any thing\nheadgate status --flowz --flows=5\n```\nand --plain text\n"
	want := []string{"no command has --flowz, of `--flowz`", "no command has --flowz, of headgate status --flowz --flows=5"}
	if diff := gocmp.Diff(want, unknownFlags(text, []string{"flows"})); diff != "" {
		t.Errorf("unknownFlags (-want +got):\n%s", diff)
	}
}

// unknownFlags returns a line for each flag in code that is not known: of code within a
// text, and of command lines of ours.
func unknownFlags(text string, known []string) (complaints []string) {
	blocks := strings.Join(fenced.FindAllString(text, -1), "\n")
	code := span.FindAllString(fenced.ReplaceAllString(text, ""), -1)
	for line := range strings.Lines(blocks) {
		if line = strings.TrimSpace(line); strings.Contains(line, "headgate ") || strings.Contains(line, "headgate-bench ") {
			code = append(code, line)
		}
	}
	for _, c := range code {
		for _, m := range flagIn.FindAllStringSubmatch(c, -1) {
			if !slices.Contains(known, m[1]) {
				complaints = append(complaints, fmt.Sprintf("no command has --%s, of %s", m[1], c))
			}
		}
	}
	return complaints
}

// flagsOf returns the flags of a command and of all below it, hidden ones, too.
func flagsOf(c *cobra.Command) (names []string) {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	add := func(f *pflag.Flag) { names = append(names, f.Name) }
	c.Flags().VisitAll(add)
	c.PersistentFlags().VisitAll(add)
	for _, sub := range c.Commands() {
		names = append(names, flagsOf(sub)...)
	}
	return names
}

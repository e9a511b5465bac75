// Package clidocs_test writes docs/cli.md from the commands themselves, and from the
// output that tests/cli compares: what the page shows is what is printed.
package clidocs_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/cli"
)

var update = flag.Bool("update", false, "write docs/cli.md")

const (
	root = "../.."
	page = root + "/docs/cli.md"
	head = `# Commands

<!-- go test ./tests/clidocs -update writes this page -->

What each command says of itself, and where tests compare what it prints, an example. "make man" writes the same as man
pages. "headgate agent" and "headgate check" have the same flags: "--help" lists them, "--help=kube-proxy" lists those of kube-proxy, and
"--help=all" explains all, as the section of "headgate agent" does here. Exit codes: 0 well, 1 used wrongly or failed, 2 Headgate is not loaded, 3 something is not well.
`
)

// headgate returns the commands as they are where no environment changes defaults.
func headgate(t *testing.T) *cobra.Command {
	t.Helper()
	for _, name := range []string{"NODE_NAME", "STATE_DIRECTORY"} {
		t.Setenv(name, "")
	}
	return cli.Command("VERSION")
}

func TestThePageHasEveryCommandWithItsFlags(t *testing.T) {
	want := pageOf(headgate(t), mustExamples(t))
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/cli.md (-commands +page; run this test with -update):\n%s", diff)
	}
}

// pageOf describes a command and those below it.
func pageOf(top *cobra.Command, examples []example) string {
	var b strings.Builder
	b.WriteString(head)
	for _, c := range visible(top) {
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s```\n", c.CommandPath(), helpOf(c))
		for _, e := range examples {
			if found, _, err := top.Find(strings.Fields(e.args)); err == nil && found == c {
				fmt.Fprintf(&b, "\n```\n$ headgate %s\n%s```\n", e.args, e.output)
			}
		}
	}
	return b.String()
}

// visible returns a command and those below it that people are shown, a parent first.
func visible(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" && (sub.IsAvailableCommand() || sub.HasAvailableSubCommands()) {
			out = append(out, visible(sub)...)
		}
	}
	return out
}

// helpOf returns what --help prints, without flags that every command has.
func helpOf(c *cobra.Command) string {
	var b bytes.Buffer
	c.SetOut(&b)
	c.InitDefaultHelpFlag()
	if c.Name() == "agent" {
		_ = c.Flags().Set("help", "all") // commands take it that share its flags
	}
	_ = c.Help() // it writes to memory
	text := strings.TrimSpace(b.String())
	if c.HasParent() {
		text, _, _ = strings.Cut(text, "\n\nGlobal Flags:")
		text, _, _ = strings.Cut(text, "\n\nEvery command:")
	}
	return trailing.ReplaceAllString(text, "") + "\n"
}

var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// example is a command line, and what it prints.
type example struct{ args, output string }

var (
	shown    = regexp.MustCompile(`(?m)^(?:shows 0 )?headgate (.+)\ncmp stdout (\S+)$`)
	unshown  = regexp.MustCompile(`(^| )-(j|p)( |$)|json|yaml`)
	variable = regexp.MustCompile(` ?(--\S+=)?\$\S+`)
)

// mustExamples returns those whose output tests/cli compares whole, for people and not for
// programs, each output once.
func mustExamples(t *testing.T) (out []example) {
	t.Helper()
	files, err := filepath.Glob(root + "/tests/cli/testdata/kernel/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		if file == symptomsScript {
			continue // has a page of its own
		}
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sections := sectionsOf(archive)
		for _, m := range shown.FindAllStringSubmatch(string(archive.Comment), -1) {
			output, args := sections[m[2]], strings.TrimSpace(variable.ReplaceAllString(m[1], ""))
			if output == "" || seen[output] || unshown.MatchString(args) {
				continue
			}
			seen[output] = true
			out = append(out, example{args, output})
		}
	}
	slices.SortStableFunc(out, func(a, b example) int { return cmp.Compare(len(a.args), len(b.args)) })
	return out
}

func TestExamplesAreThoseOfScripts(t *testing.T) {
	var commands []string
	top := headgate(t)
	for _, e := range mustExamples(t) {
		if c, _, err := top.Find(strings.Fields(e.args)); err == nil {
			commands = append(commands, c.CommandPath())
		}
	}
	for _, want := range []string{"headgate frontend list", "headgate frontend show", "headgate backend list"} {
		if !slices.Contains(commands, want) {
			t.Errorf("no example of %s; there are those of %q", want, commands)
		}
	}
}

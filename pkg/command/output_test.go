package command

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
)

func TestAWriterToPeopleSaysThatItHasTakenEverything(t *testing.T) {
	if n, err := Printable(io.Discard).Write([]byte("a\x1b\nb")); n != 4 || err != nil {
		t.Errorf("%d bytes, %v, want 4", n, err)
	}
}

func TestAWriterToPeopleKeepsLinesAndTabs(t *testing.T) {
	var out strings.Builder
	if _, err := Printable(&out).Write([]byte("a\x1b\tb\u202e\n\n\tc")); err != nil || out.String() != "a \tb \n\n\tc" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestAnErrorIsOneLineThatNoTerminalObeys(t *testing.T) {
	var stderr strings.Builder
	root := &cobra.Command{Use: "headgate", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		return errors.New("first \x1b[2J\n  second\n")
	}}
	if code := Run(root, nil, io.Discard, &stderr, func(error) int { return 7 }); code != 7 || stderr.String() != "headgate: first  [2J; second\n" {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
}

// FuzzPrint prints names of anybody: a cell stays in its line, and nothing of it
// reaches a terminal that would obey.
func FuzzPrint(f *testing.F) {
	f.Add("web\x1b[2J", "a\nheadgate 2026 info forged")
	f.Add("\u009b31m", "\t\u202e\xff")
	f.Fuzz(func(t *testing.T, one, two string) {
		for _, o := range []Output{{}, {JSON: true}, {Pretty: true}} {
			var out strings.Builder
			if err := o.Print(&out, Table{Rows: [][]string{{one, two}, {"end", "end"}}, Value: []string{one, two}}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if i := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
					t.Errorf("%q has something else than text at %d", line, i)
				}
			}
			if n := strings.Count(out.String(), "\n"); !o.IsJSON() && n != 2 {
				t.Errorf("two rows are %d lines: %q", n, out.String())
			}
		}
	})
}

package lb

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestProblemIsOneLine(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   Problem
		want string
	}{
		{"everything known", Problem{"web.yaml", "Service default/web", "spec.ports[0].port", "99999", "not a port", "use 1 to 65535", false, ScopeNode},
			`web.yaml: Service default/web: spec.ports[0].port "99999": not a port; use 1 to 65535`},
		{"a field that is missing has no value", Problem{Object: "Service default/web", Field: "spec.ports", Reason: "missing"},
			"Service default/web: spec.ports: missing"},
		{"a file that cannot be read", Problem{File: "web.yaml", Reason: "not YAML", Remedy: "correct it"}, "web.yaml: not YAML; correct it"},
		{"a value of several lines", Problem{Field: "f", Value: "a\r\n\tb", Reason: "bad"}, `f "a   b": bad`},
		{"names that talk to the terminal, or forge a line", Problem{File: "a\x1b[31m.yaml", Object: "Service default/web\nheadgate info", Field: "f\u009b", Value: "v\u202e", Reason: "is\u2028bad", Remedy: "do\tthis"},
			`a [31m.yaml: Service default/web headgate info: f  "v ": is bad; do this`},
		{"a value that talks to the terminal", Problem{Field: "f", Value: "a\x1b[31mb\x00", Reason: "bad"}, `f "a [31mb ": bad`},
	} {
		t.Run(tc.name, func(t *testing.T) { mustDiff(t, tc.want, tc.in.Error()) })
	}
}

func TestQuoteCutsLongValues(t *testing.T) {
	mustDiff(t, `"`+strings.Repeat("x", 80)+`"`, Quote(strings.Repeat("x", 80)))
	mustDiff(t, `"`+strings.Repeat("x", 80)+`…"`, Quote(strings.Repeat("x", 81)))
}

// é is two bytes, so that one of these two is cut in the middle of one.
func TestQuoteCutsBetweenCharacters(t *testing.T) {
	for _, s := range []string{strings.Repeat("é", 50), "x" + strings.Repeat("é", 50)} {
		if got := Quote(s); !utf8.ValidString(got) || strings.ContainsRune(got, utf8.RuneError) {
			t.Errorf("Quote(%q) = %q, cut in a character", s, got)
		}
	}
}

// FuzzProblem makes problems of any text: each is one line, which no terminal
// obeys, and no longer than what it is made of.
func FuzzProblem(f *testing.F) {
	f.Add("a.yaml\x1b", "Service default/web\n", "spec\r", "\x00\u202e", "bad\u0085", "\xff\x9b")
	f.Add(strings.Repeat("é", 100), "", "f", strings.Repeat("é", 100), "", "")
	f.Fuzz(func(t *testing.T, file, object, field, value, reason, remedy string) {
		text := Problem{file, object, field, value, reason, remedy, false, ScopeObject}.Error()
		for _, r := range text {
			if !unicode.IsPrint(r) {
				t.Errorf("%q has %U", text, r)
			}
		}
		if !utf8.ValidString(text) {
			t.Errorf("%q is not text", text)
		}
	})
}

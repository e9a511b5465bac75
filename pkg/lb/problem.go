package lb

import (
	"cmp"
	"fmt"
	"sort"
	"strings"
	"unicode"
)

// Problem is something in the input that cannot be done as it stands. It names
// the object, the field, the value and what to do about it; nothing else is
// affected by it, and what was last good of the object stays in force.
type Problem struct {
	File   string // "" where the object did not come from a file
	Object string // such as "Service default/web", "" where unknown
	Field  string // such as "spec.ports[0].port", "" where the whole object is meant
	Value  string // as written, "" where nothing was
	Reason string // what is wrong: a lower-case phrase
	Remedy string // what to do: an imperative phrase

	// Unserved says that the object is a Service which has nothing in force because of it.
	Unserved bool
	Scope    Scope
}

// Scope is what a problem makes unwell. The verdict on a node counts only its own problems: no object of a
// tenant changes it.
type Scope string

// The scopes.
const (
	ScopeObject  Scope = ""        // an object, or the Service of it
	ScopeNode    Scope = "node"    // the agent, its programs, devices, maps, ports or API server
	ScopeBackend Scope = "backend" // a backend that clients avoid
)

// String returns the scope as metrics have it.
func (s Scope) String() string { return cmp.Or(string(s), "object") }

// Error returns the problem as one line.
func (p Problem) Error() string {
	var b strings.Builder
	for _, part := range []string{p.File, p.Object} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	if p.Field != "" {
		b.WriteString(p.Field)
		if p.Value != "" {
			b.WriteString(" " + Quote(p.Value))
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Reason)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return Printable(b.String())
}

// Quote puts a value in quotes, cut where it is long.
func Quote(s string) string { return `"` + Cut(s) + `"` }

// Cut returns the begin of a value that is long: messages stay lines that can be read.
func Cut(s string) string {
	const most = 80 // bytes
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…" // the cut may be in a character
}

// Printable returns text as one line without what a terminal would obey: control
// characters, and those that change the direction of a line, become spaces. Names
// and values may be anybody's.
func Printable(s string) string {
	if isPlain(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// isPlain says whether a text is printable ASCII, which nearly all are: lists ask millions of times.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// SortProblems sorts them. slices.SortFunc is compiled for each type, which takes 25 kB of this one.
func SortProblems(all []Problem, compare func(a, b *Problem) int) {
	sort.Slice(all, func(i, j int) bool { return compare(&all[i], &all[j]) < 0 })
}

// MostProblems is how many problems of one object, or file, are told one by one.
const MostProblems = 10

// MoreProblems stands for those of an object, or file, that are not told.
func MoreProblems(file, object string, n int) Problem {
	return Problem{File: file, Object: object, Reason: fmt.Sprintf("has %d more problems", n), Remedy: "mend the others first"}
}

// MostTogether is how many problems of all objects together are told one by one.
const MostTogether = 1000

// Bounded returns so many problems of something, and one that counts the others, in the scope of the last.
func Bounded(of string, problems []Problem) []Problem { return BoundedBesides(of, problems, 0) }

// BoundedBesides is Bounded where there are more problems than those in the list.
func BoundedBesides(of string, problems []Problem, besides int) []Problem {
	told := min(len(problems), MostTogether)
	more := besides + len(problems) - told
	if more == 0 {
		return problems
	}
	rest := MoreProblems("", of, more)
	if told > 0 {
		rest.Scope = problems[told-1].Scope
	}
	return append(problems[:told:told], rest)
}

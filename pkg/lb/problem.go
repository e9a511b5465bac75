package lb

import (
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
}

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
			b.WriteString(" " + quote(p.Value))
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Reason)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}

// quote puts a value in quotes, cut where it is long, on one line and without
// what a terminal would obey: the value may be anybody's.
func quote(s string) string {
	const most = 80 // bytes
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…" // the cut may be in a character
	}
	return `"` + strings.Map(spaceForControl, s) + `"`
}

// spaceForControl returns a space in place of a control character.
func spaceForControl(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

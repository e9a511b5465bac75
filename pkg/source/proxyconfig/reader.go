package proxyconfig

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

const maxInt32 = math.MaxInt32

// reader reads settings by path, such as "conntrack.min", and remembers which.
type reader struct {
	doc        map[string]any // of the file
	flags      map[string]any // by path, with precedence
	standalone bool
	used       map[string]bool
	wrong      []lb.Problem // what kube-proxy would not take
	warned     []lb.Problem
}

// bounds are the least and the greatest value.
type bounds struct{ least, greatest int }

func (r *reader) fail(path, value, reason, remedy string) {
	p := lb.Problem{Field: r.name(path), Value: value, Reason: reason, Remedy: remedy}
	if !slices.Contains(r.wrong, p) { // a section that is none fails for each of its fields
		r.wrong = append(r.wrong, p)
	}
}

func (r *reader) warn(path, value, reason string) {
	r.warned = append(r.warned, lb.Problem{Field: r.name(path), Value: value, Reason: reason})
}

// name returns how the user has spelled a setting: as a flag or as a field.
func (r *reader) name(path string) string {
	if _, byFlag := r.flags[path]; byFlag {
		for _, s := range Settings() {
			if s.key() == path {
				return "--" + s.Flag
			}
		}
	}
	return path
}

// value returns what a setting says, nil if nothing.
func (r *reader) value(path string) any {
	r.used[path] = true
	if v, byFlag := r.flags[path]; byFlag || strings.HasPrefix(path, "--") {
		return v
	}
	var at any = r.doc
	names := strings.Split(path, ".")
	for i, name := range names {
		section, ok := at.(map[string]any)
		if !ok && at != nil {
			r.fail(strings.Join(names[:i], "."), written(at), "is not a section with fields", "write its fields below it, or leave it out")
		}
		at = section[name]
	}
	return at
}

// is reads a value of a type that JSON has.
func is[T any](r *reader, path, what string, otherwise T) T {
	v := r.value(path)
	if v == nil {
		return otherwise
	}
	t, ok := v.(T)
	if !ok {
		r.fail(path, written(v), "is not "+what, "write "+what+", or leave it out")
		return otherwise
	}
	return t
}

// text reads a string. An empty one counts as not written.
func (r *reader) text(path, otherwise string) string {
	if s := is(r, path, "a string", ""); s != "" {
		return s
	}
	return otherwise
}

// flag reads a boolean.
func (r *reader) flag(path string, otherwise bool) bool {
	return is(r, path, "true or false", otherwise)
}

// texts reads a list of strings.
func (r *reader) texts(path string) []string {
	var out []string
	for _, v := range is[[]any](r, path, "a list", nil) {
		s, ok := v.(string)
		if !ok {
			r.fail(path, written(v), "is not a string", "write a list of strings")
		}
		out = append(out, s)
	}
	return out
}

// whole reads a whole number.
func (r *reader) whole(path string, b bounds, otherwise int) int {
	n := is(r, path, "a number", json.Number(strconv.Itoa(otherwise)))
	i, err := strconv.Atoi(n.String())
	if err != nil || i < b.least || i > b.greatest {
		r.fail(path, n.String(), "is out of range", "write a whole number from "+strconv.Itoa(b.least)+" to "+strconv.Itoa(b.greatest))
	}
	return i
}

// wholeIfSet reads a whole number, nil where nothing is written.
func (r *reader) wholeIfSet(path string, b bounds) *int {
	if r.value(path) == nil {
		return nil
	}
	n := r.whole(path, b, 0)
	return &n
}

// decimal reads a number. 0 counts as not written.
func (r *reader) decimal(path string, otherwise float32) float32 {
	n := is(r, path, "a number", json.Number("0"))
	f, err := strconv.ParseFloat(n.String(), 32)
	if err != nil {
		r.fail(path, n.String(), "is out of range", "write a number such as 5")
	}
	if f == 0 {
		return otherwise
	}
	return float32(f)
}

// duration reads a duration of at least 0.
func (r *reader) duration(path string, otherwise time.Duration) time.Duration {
	s := is(r, path, "a duration such as 30s", "")
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		r.fail(path, s, "is not a duration of at least 0", "write one such as 30s or 1h30m")
	}
	return d
}

// period reads a duration of which 0 counts as not written.
func (r *reader) period(path string, otherwise time.Duration) time.Duration {
	if d := r.duration(path, 0); d != 0 {
		return d
	}
	return otherwise
}

// written returns a value as JSON, a string without its quotes.
func written(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

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

// reader reads fields by path, such as "conntrack.min", and remembers which.
type reader struct {
	doc    map[string]any
	used   map[string]bool
	wrong  []lb.Problem // what kube-proxy would not take
	warned []lb.Problem
}

// bounds are the least and the greatest value.
type bounds struct{ least, greatest int }

func (r *reader) fail(path, value, reason, remedy string) {
	p := lb.Problem{Field: path, Value: value, Reason: reason, Remedy: remedy}
	if !slices.Contains(r.wrong, p) { // a section that is none fails for each of its fields
		r.wrong = append(r.wrong, p)
	}
}

func (r *reader) warn(path, value, reason string) {
	r.warned = append(r.warned, lb.Problem{Field: path, Value: value, Reason: reason})
}

// value returns what a field says, nil if nothing.
func (r *reader) value(path string) any {
	r.used[path] = true
	var at any = r.doc
	names := strings.Split(path, ".")
	for i, name := range names {
		section, ok := at.(map[string]any)
		if !ok && at != nil {
			r.fail(strings.Join(names[:i], "."), written(at), "is not a section with fields", "")
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
		r.fail(path, written(v), "is not "+what, "")
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

// required reads a string that another field asks for.
func (r *reader) required(path string) string {
	s := r.text(path, "")
	if s == "" {
		r.fail(path, "", "is missing, which the detectLocalMode needs", "write it, or choose another detectLocalMode")
	}
	return s
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
			r.fail(path, written(v), "is not a string", "")
		}
		out = append(out, s)
	}
	return out
}

// gates reads the feature gates and warns of each.
func (r *reader) gates() map[string]bool {
	out := map[string]bool{}
	for name := range is[map[string]any](r, "featureGates", "a section with fields", nil) {
		path := "featureGates." + name
		out[name] = r.flag(path, false)
		r.warn(path, strconv.FormatBool(out[name]), "Headgate has no such feature gate")
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

// decimal reads a number. 0 counts as not written.
func (r *reader) decimal(path string, otherwise float32) float32 {
	n := is(r, path, "a number", json.Number("0"))
	f, err := strconv.ParseFloat(n.String(), 32)
	if err != nil {
		r.fail(path, n.String(), "is out of range", "")
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

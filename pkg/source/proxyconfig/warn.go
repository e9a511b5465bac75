package proxyconfig

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/lb"
)

// warnings returns those of reading, and one for each setting that says something
// and was not read.
func (r *reader) warnings() []lb.Problem {
	r.used["apiVersion"], r.used["kind"] = true, true
	r.warnUnused("", r.doc)
	for path, value := range r.flags {
		if !r.used[path] && !isZero(value) {
			r.warn(path, written(value), whyNot(path))
		}
	}
	lb.SortProblems(r.warned, func(a, b *lb.Problem) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	return r.warned
}

// warnUnused warns of fields that no flag has replaced.
func (r *reader) warnUnused(prefix string, fields map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		path, value := prefix+name, fields[name]
		if _, replaced := r.flags[path]; replaced || r.used[path] {
			continue
		}
		if section, ok := value.(map[string]any); ok {
			r.warnUnused(path+".", section)
			continue
		}
		reason := whyNot(path)
		switch {
		case reason == "":
			r.warn(path, written(value), "kube-proxy has no such field")
		case !isZero(value):
			r.warn(path, written(value), reason)
		}
	}
}

// isZero says whether a field is as good as not written: kubeadm writes every
// field of the type, set or not.
func isZero(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	case string:
		d, err := time.ParseDuration(v) // "0s", and "0" of a quantity
		return v == "" || err == nil && d == 0
	case []any:
		return len(v) == 0
	default:
		return false
	}
}

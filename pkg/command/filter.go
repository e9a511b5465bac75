package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// filter takes the elements of a list that have a value at a path: any value, or one that compares
// with a text, number or boolean.
type filter struct {
	steps []step
	op    string // "" takes any value
	than  any    // string, float64, bool or nil
}

// parseFilter reads the parts of [?(@PATH OP VALUE)].
func parseFilter(path, op, value string) (*filter, error) {
	steps, err := parseSteps(path)
	f := &filter{steps: steps, op: op}
	switch {
	case err != nil || op == "":
	case strings.ContainsAny(value[:1], `"'`):
		f.than = value[1 : len(value)-1]
	case json.Unmarshal([]byte(value), &f.than) != nil:
		return nil, fmt.Errorf("%s is neither a number nor a text in quotes", value)
	}
	return f, err
}

// takes says whether an element has such a value.
func (f *filter) takes(element any) bool {
	found := []any{element}
	for _, s := range f.steps {
		found = s.from(found)
	}
	for _, value := range found {
		if f.matches(value) {
			return true
		}
	}
	return false
}

func (f *filter) matches(value any) bool {
	if whole, ok := value.(int64); ok {
		value = float64(whole)
	}
	order, ordered := 0, false
	switch v := value.(type) {
	case string:
		if than, ok := f.than.(string); ok {
			order, ordered = cmp.Compare(v, than), true
		}
	case float64:
		if than, ok := f.than.(float64); ok {
			order, ordered = cmp.Compare(v, than), true
		}
	case bool, nil:
		if ordered = value == f.than; !ordered && f.op != "" {
			return f.op == "!="
		}
	}
	switch f.op {
	case "":
		return true
	case "!=":
		return !ordered || order != 0
	case "==":
		return ordered && order == 0
	case "<":
		return ordered && order < 0
	case ">":
		return ordered && order > 0
	case "<=":
		return ordered && order <= 0
	default: // >=
		return ordered && order >= 0
	}
}

package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// mistyped turns the error of a decoder into field, value and reason.
func mistyped(raw []byte, err error) mistake {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return mistake{reason: "cannot be decoded: " + err.Error(), remedy: "correct it"}
	}
	want := typeName(wrong.Type.Kind())
	m := mistake{field: wrong.Field, reason: "is not " + want, remedy: "write " + want}
	if wrong.Type.Kind() == reflect.String {
		m.remedy += inQuotes
	}
	field, value := valueAt(raw, wrong.Offset)
	// An offset counted by a type with a decoder of its own starts elsewhere.
	if plain := withoutIndexes(field); plain == wrong.Field || strings.HasPrefix(plain, wrong.Field+".") {
		m.field, m.value = field, value
	}
	return m
}

// inQuotes is what to do about a word that YAML takes for something else: on, off, yes and
// no for a truth (YAML 1.1), digits for a number.
const inQuotes = ", in quotes: YAML takes on, off, yes, no, true, false and numbers for other than text"

// notText returns what is wrong with a field of the metadata that is there, but is no text.
func notText(raw []byte, field string) (mistake, bool) {
	var o struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(raw, &o) != nil {
		return mistake{}, false
	}
	value := bytes.TrimSpace(o.Metadata[field])
	if len(value) == 0 || value[0] == '"' || bytes.Equal(value, []byte("null")) {
		return mistake{}, false
	}
	return mistake{field: "metadata." + field, value: string(value), reason: "is not a string", remedy: "write a string" + inQuotes}, true
}

// hasLabels says whether the labels of an object can be read, be they none.
func hasLabels(raw []byte) bool {
	var o struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	return json.Unmarshal(raw, &o) == nil
}

// typeName says in words of YAML what a Go type takes.
func typeName(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a map of fields"
	default:
		return "a whole number in range"
	}
}

var index = regexp.MustCompile(`\[\d+\]`)

func withoutIndexes(path string) string { return index.ReplaceAllString(path, "") }

// place is one level of a JSON text that is being walked.
type place struct {
	list  bool
	at    int    // index of the element read last, from 0
	key   string // of the member to come
	keyed bool   // key has been read, its value has not
}

// valueAt returns the path of the last value that starts before an offset of a
// JSON text, and the value as written, "" for lists and objects.
func valueAt(raw []byte, offset int64) (path, value string) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var stack []place
	for {
		start := startOfToken(raw, d.InputOffset())
		token, err := d.Token()
		if err != nil || start >= offset {
			return path, value
		}
		delim, _ := token.(json.Delim)
		if delim == ']' || delim == '}' {
			stack = stack[:len(stack)-1]
			continue
		}
		top := len(stack) - 1
		if top >= 0 && !stack[top].list && !stack[top].keyed {
			stack[top].key, stack[top].keyed = fmt.Sprint(token), true
			continue
		}
		if top >= 0 {
			stack[top].keyed = false
			stack[top].at++
		}
		path, value = pathOf(stack), ""
		if delim == 0 {
			value = string(bytes.Trim(raw[start:d.InputOffset()], `"`))
		}
		if delim != 0 {
			stack = append(stack, place{list: delim == '[', at: -1})
		}
	}
}

// startOfToken skips what may stand between two tokens.
func startOfToken(raw []byte, from int64) int64 {
	rest := raw[from:]
	return from + int64(len(rest)-len(bytes.TrimLeft(rest, " \t\r\n,:")))
}

// pathOf returns a path such as "spec.ports[1].port".
func pathOf(stack []place) string {
	var b strings.Builder
	for _, p := range stack {
		switch {
		case p.list:
			b.WriteString("[" + strconv.Itoa(p.at) + "]")
		case b.Len() > 0:
			b.WriteString("." + p.key)
		default:
			b.WriteString(p.key)
		}
	}
	return b.String()
}

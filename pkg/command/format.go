package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v2" // v3 writes a text that begins with a tab such that nothing reads it
)

// APIVersion is that of what commands print for programs. A field that goes, or means
// something else, changes it.
const APIVersion = "headgate.dev/v1alpha1"

// Type says what a value is that a command prints for programs.
type Type struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// TypeOf returns the type of a kind.
func TypeOf(kind string) Type { return Type{APIVersion, kind} }

// List is some of a kind.
type List[T any] struct {
	Type
	Items []T `json:"items"`
}

// ListOf returns a list, which is never null.
func ListOf[T any](kind string, items []T) List[T] {
	return List[T]{TypeOf(kind + "List"), append([]T{}, items...)}
}

// The forms that a command may be asked for.
const (
	formatWide     = "wide"
	formatJSON     = "json"
	formatYAML     = "yaml"
	formatName     = "name"
	formatJSONPath = "jsonpath="
)

// format is a flag that says in which form to print: one of these, as kubectl has them.
type format string

// errFormat says that there is no such form. Which there are, Takes says.
var errFormat = errors.New("no such form")

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	switch s {
	case formatWide, formatJSON, formatYAML, formatName:
	default:
		template, ok := strings.CutPrefix(s, formatJSONPath)
		if !ok {
			return errFormat
		}
		if _, err := parsePath(template); err != nil {
			return errFormat
		}
	}
	*f = format(s)
	return nil
}

// String implements pflag.Value.
func (f *format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *format) Type() string { return "form" }

// Takes says what the flag takes.
func (f *format) Takes() string {
	return "wide, json, yaml, name, or a path such as jsonpath={.items[*].name}"
}

// Words are those that the flag takes.
func (f *format) Words() []string {
	return []string{formatWide, formatJSON, formatYAML, formatName, formatJSONPath}
}

// AddFormat adds the flag by which kubectl is asked for a form.
func (o *Output) AddFormat(flags *pflag.FlagSet) {
	flags.VarP(&o.format, "output", "o", "form of what is printed: wide, json, yaml, name, jsonpath=TEMPLATE")
}

// IsWide says whether everything is to be shown that people may want.
func (o Output) IsWide() bool { return o.format == formatWide }

// printValue prints a value for programs.
func (o Output) printValue(w io.Writer, value any) error {
	switch f := o.format; {
	case f == formatYAML:
		plain, err := plainly(value)
		if err != nil {
			return err
		}
		encoder := yaml.NewEncoder(w)
		return errors.Join(encoder.Encode(plain), encoder.Close())
	case strings.HasPrefix(string(f), formatJSONPath):
		plain, err := plainly(value)
		if err != nil {
			return err
		}
		return printPath(w, strings.TrimPrefix(string(f), formatJSONPath), plain)
	default:
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		if o.isIndented() {
			encoder.SetIndent("", "  ")
		}
		return encoder.Encode(value)
	}
}

// isIndented says whether JSON is to have a line for each value.
func (o Output) isIndented() bool { return o.Pretty || o.format == formatJSON }

// printPath prints what a template names of a value, such as plainly returns it.
func printPath(w io.Writer, template string, plain any) error {
	path, err := parsePath(template)
	if err != nil {
		return err
	}
	text := path.print(plain)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err = io.WriteString(w, text)
	return err
}

// plainly returns a value as JSON has it: by the names of JSON, in maps and lists.
func plainly(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return nil, err
	}
	return withWholeNumbers(plain), nil
}

// withWholeNumbers makes integers of numbers that are, which 4.711e+06 does not look like.
func withWholeNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		float, _ := v.Float64() // JSON has no other numbers
		return float
	case []any:
		for i := range v {
			v[i] = withWholeNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = withWholeNumbers(v[k])
		}
	}
	return value
}

package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// schema is as much of JSON Schema as docs/schema.json uses.
type schema struct {
	Type                 any
	Const                any
	Format               string
	Items                *schema
	Properties           map[string]*schema
	Required             []string
	AdditionalProperties *schema
	Defs                 map[string]*schema `json:"$defs"`
}

func readSchema(path string) (s schema, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// fits FILE wants what a command has printed with -o json to be as docs/schema.json says.
func fits(ts *testscript.TestScript, _ bool, args []string) {
	s, err := readSchema(pageOfSchema)
	ts.Check(err)
	for _, complaint := range s.complaints(ts.ReadFile(args[0])) {
		ts.Fatalf("%s", complaint)
	}
}

// complaints are about a text that is to be one of the kinds of a schema.
func (s schema) complaints(text string) []string {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return []string{err.Error()}
	}
	kind := ""
	if object, ok := value.(map[string]any); ok {
		kind, _ = object["kind"].(string)
	}
	if s.Defs[kind] == nil {
		return []string{fmt.Sprintf("kind %q has no schema", kind)}
	}
	return s.Defs[kind].wrong(kind, value)
}

// wrong is a line for whatever in a value is not as the schema says. What it does not name is
// wrong here, though programs are to ignore it.
func (s *schema) wrong(at string, value any) (complaints []string) {
	say := func(format string, args ...any) {
		complaints = append(complaints, at+": "+fmt.Sprintf(format, args...))
	}
	if s.Const != nil && s.Const != value {
		say("is %v, not %v", value, s.Const)
	}
	if types := s.types(); len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return isA(t, value) }) {
		say("%v is not of type %s", value, strings.Join(types, " or "))
		return complaints
	}
	switch v := value.(type) {
	case string:
		if _, err := time.Parse(time.RFC3339Nano, v); s.Format == "date-time" && err != nil {
			say("%q is no time", v)
		}
	case []any:
		for i, item := range v {
			complaints = append(complaints, s.Items.wrong(fmt.Sprintf("%s[%d]", at, i), item)...)
		}
	case map[string]any:
		for _, name := range s.Required {
			if _, has := v[name]; !has {
				say("%s is missing", name)
			}
		}
		for name, below := range v {
			of := s.Properties[name]
			if of == nil {
				of = s.AdditionalProperties
			}
			if of == nil {
				say("%s is not in the schema", name)
				continue
			}
			complaints = append(complaints, of.wrong(at+"."+name, below)...)
		}
	}
	sort.Strings(complaints)
	return complaints
}

func (s *schema) types() (out []string) {
	switch t := s.Type.(type) {
	case string:
		return []string{t}
	case []any:
		for _, one := range t {
			out = append(out, one.(string))
		}
	}
	return out
}

func isA(kind string, value any) bool {
	switch v := value.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || kind == "integer" && v == math.Trunc(v)
	case []any:
		return kind == "array"
	default:
		return kind == "object"
	}
}

const pageOfSchema = "../../docs/schema.json"

func TestWhatDoesNotFitTheSchemaIsReported(t *testing.T) {
	s, err := readSchema(pageOfSchema)
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"apiVersion":"headgate.dev/v1alpha1","kind":"LogLevel","level":"debug","usual":"warn","until":"2026-01-02T03:04:05Z"}`
	if got := s.complaints(good); got != nil {
		t.Errorf("%s: %q", good, got)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"debug"`, `5`, "LogLevel.level: 5 is not of type string"},
		{`"level"`, `"lever"`, "LogLevel: level is missing LogLevel: lever is not in the schema"},
		{`2026-01-02T`, `2026`, `LogLevel.until: "202603:04:05Z" is no time`},
		{`v1alpha1`, `v2`, "LogLevel.apiVersion: is headgate.dev/v2, not headgate.dev/v1alpha1"},
		{`LogLevel`, `Loglevel`, `kind "Loglevel" has no schema`},
		{`{`, ``, "invalid character ':' after top-level value"},
	} {
		if got := strings.Join(s.complaints(strings.Replace(good, c.old, c.new, 1)), " "); got != c.want {
			t.Errorf("%s for %s: %q, want %q", c.new, c.old, got, c.want)
		}
	}
}

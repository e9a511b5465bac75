package cli

import (
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/reconciler"
)

const schemaPage = "../../docs/schema.json"

// kinds are what commands print for programs, by their kind.
var kinds = map[string]any{
	"AffinityList": command.List[affinity]{}, "BackendList": command.List[backend]{}, "DeviceList": command.List[device]{}, "FlowList": command.List[flow]{},
	"FrontendList": command.List[frontend]{}, "MapList": command.List[shownMap]{}, "PeerList": command.List[peer]{}, "ProblemList": command.List[problem]{},
	"RangeList": command.List[sourceRange]{}, "ServiceList": command.List[service]{}, "ServiceTrafficList": command.List[traffic]{}, "TableList": command.List[shownTable]{},
	"DifferenceList": command.List[reconciler.Difference]{}, "ExplanationList": command.List[explanation]{},
	"DrainResult": drainResult{}, "Drained": drained{}, "FlowCount": flowTotal{}, "Flushed": flushed{}, "LogLevel": logLevel{}, "Status": status{}, "Sysdump": sysdump{},
}

// The schema is written from the types: go test ./pkg/cli -run TheSchemaOfJSON -update
func TestTheSchemaOfJSONIsThatOfTheTypes(t *testing.T) {
	definitions := map[string]any{}
	var oneOf []map[string]any
	for kind, value := range kinds {
		s := jsonSchemaOf(reflect.TypeOf(value))
		s["properties"].(map[string]any)["kind"] = map[string]any{"const": kind}
		s["properties"].(map[string]any)["apiVersion"] = map[string]any{"const": command.APIVersion}
		definitions[kind] = s
	}
	for _, kind := range sortedKeys(definitions) {
		oneOf = append(oneOf, map[string]any{"$ref": "#/$defs/" + kind})
	}
	want, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "What headgate prints with -o json. Programs are to ignore fields that they do not know.",
		"oneOf":   oneOf, "$defs": definitions,
	}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(schemaPage, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/schema.json (-types +page), mend it with -update:\n%s", diff)
	}
}

// Whoever adds a noun, or a command that prints another kind, adds it to the schema.
func TestEveryNounHasASchema(t *testing.T) {
	root := Command("v1")
	for _, of := range dumped(root) {
		if len(of) > 1 && kinds[capitalized(of[0])+"List"] == nil {
			t.Errorf("headgate %s prints a kind without a schema", strings.Join(of, " "))
		}
	}
}

func sortedKeys(of map[string]any) (out []string) {
	body, _ := json.Marshal(of) // which sorts them
	decoder := json.NewDecoder(strings.NewReader(string(body)))
	_, _ = decoder.Token()
	for decoder.More() {
		key, _ := decoder.Token()
		out = append(out, key.(string))
		var value json.RawMessage
		_ = decoder.Decode(&value)
	}
	return out
}

var textual = reflect.TypeFor[encoding.TextMarshaler]()

// jsonSchemaOf returns the schema of what encoding/json makes of a type.
func jsonSchemaOf(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Implements(textual):
		return map[string]any{"type": "string"}
	case t.Implements(reflect.TypeFor[interface{ texts() []string }]()):
		return map[string]any{"type": []string{"array", "null"}, "items": map[string]any{"type": "string"}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return jsonSchemaOf(t.Elem())
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": []string{"array", "null"}, "items": jsonSchemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": jsonSchemaOf(t.Elem())}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		addFields(t, properties, &required)
		return map[string]any{"type": "object", "properties": properties, "required": required}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	default:
		return map[string]any{"type": "integer"}
	}
}

// addFields adds the fields of a struct, and those of the structs in it that have no name.
func addFields(t reflect.Type, properties map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			if f.Type.Kind() == reflect.Pointer {
				f.Type = f.Type.Elem()
			}
			addFields(f.Type, properties, required)
		default:
			if name == "" {
				name = f.Name
			}
			if properties[name] == nil { // the outermost one counts
				if properties[name] = jsonSchemaOf(f.Type); !strings.Contains(options, "omit") {
					*required = append(*required, name)
				}
			}
		}
	}
}

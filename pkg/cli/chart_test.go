package cli

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write the flags into the schema of the chart")

// schemaFile has a property for each flag between two texts that it has once.
const (
	schemaFile  = "../../deploy/helm/headgate/values.schema.json"
	schemaBegin = "    \"config\": {\n      \"type\": \"object\",\n      \"additionalProperties\": false,\n      \"properties\": {\n"
	schemaEnd   = "      }\n    },\n    \"privileged\":"
)

// notOfTheChart are flags that its value config may not set, and why.
var notOfTheChart = map[string]string{
	"api-servers":     "apiServers",
	"log-level":       "log.level",
	"log-format":      "log.format",
	"node-name":       "the environment of the container says it",
	"cgroup":          "the container has it at a path of its own",
	"config":          "the file itself",
	"manifests":       "the container sees no folder",
	"hash-key-file":   "the container sees no such file",
	"tls-server-name": "belongs to a kubeconfig, and the container has none",
	"init-only":       "ends the agent",
	"cleanup":         "ends the agent",
}

// alsoOfTheChart are flags of kube-proxy that it may.
var alsoOfTheChart = []string{"nodeport-addresses"}

func TestTheSchemaOfTheChartHasTheFlagsAndTheirBounds(t *testing.T) {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), schemaBegin)
	have, after, ended := strings.Cut(rest, schemaEnd)
	if !found || !ended {
		t.Fatalf("%s has no %q and %q", schemaFile, schemaBegin, schemaEnd)
	}
	want := properties(t)
	if *update {
		if err := os.WriteFile(schemaFile, []byte(before+schemaBegin+want+schemaEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("config.properties (-flags +schema; run this test with -update):\n%s", diff)
	}
}

// properties are the lines of the schema.
func properties(t *testing.T) string {
	t.Helper()
	o, cmd := &agentOptions{}, &cobra.Command{}
	o.addFlags(cmd)
	ofProxy := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addProxy(ofProxy)
	for name := range notOfTheChart {
		if cmd.Flags().Lookup(name) == nil {
			t.Errorf("--%s is left out of the chart, and no flag has the name", name)
		}
	}
	var lines []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if notOfTheChart[f.Name] != "" || ofProxy.Lookup(f.Name) != nil && !slices.Contains(alsoOfTheChart, f.Name) {
			return
		}
		lines = append(lines, fmt.Sprintf("        %q: %s", f.Name, schemaOf(f)))
	})
	return strings.Join(lines, ",\n") + "\n"
}

// schemaOf is what a flag takes, as a JSON schema.
func schemaOf(f *pflag.Flag) string {
	switch v := f.Value.(type) {
	case interface{ Words() []string }:
		return `{"enum": ["` + strings.Join(v.Words(), `", "`) + `"]}`
	case *number:
		bounds := fmt.Sprintf(`{"type": "integer", "minimum": %d, "maximum": %d}`, v.least, v.most)
		if v.zero != "" {
			return `{"anyOf": [{"const": 0}, ` + bounds + `]}`
		}
		return bounds
	}
	switch {
	case f.Value.Type() == "bool":
		return `{"type": "boolean"}`
	case f.DefValue != "" && f.DefValue != "[]": // nothing would be no value
		return `{"type": "string", "minLength": 1}`
	default:
		return `{"type": "string"}`
	}
}

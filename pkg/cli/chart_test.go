package cli

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate/headgate/tests/testenv"
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
	"api-servers":                  "apiServers",
	"log-level":                    "log.level",
	"log-format":                   "log.format",
	"healthz-bind-address":         "healthzBindAddress",
	"metrics-bind-address":         "metricsBindAddress",
	"node-name":                    "the environment of the container says it",
	"bind-address":                 "is another one on each node",
	"cgroup":                       "the container has it at a path of its own",
	"config":                       "the file itself",
	"manifests":                    "the container sees no folder",
	"metrics-tls-cert-file":        "metricsTLS",
	"metrics-tls-key-file":         "metricsTLS",
	"hash-key-file":                "hashKey",
	"kubeconfig":                   "the container sees no such file",
	"tls-server-name":              "belongs to a kubeconfig, and the container has none",
	"init-only":                    "ends the agent",
	"cleanup":                      "ends the agent",
	"help":                         "ends the agent",
	"master":                       "kube-proxy's word for apiServers",
	"healthz-port":                 "kube-proxy's word for healthzBindAddress",
	"metrics-port":                 "kube-proxy's word for metricsBindAddress",
	"hostname-override":            "kube-proxy's word for node-name",
	"v":                            "kube-proxy's word for log.level",
	"logging-format":               "kube-proxy's word for log.format",
	"proxy-mode":                   "nodeport-addresses and algorithm say what it changes",
	"iptables-localhost-nodeports": "kube-proxy's word for nodeport-loopback",
	"ipvs-scheduler":               "kube-proxy's word for algorithm",
	"ipvs-sync-period":             "applies in mode ipvs only",
}

func TestTheSchemaOfTheChartHasTheFlagsAndTheirBounds(t *testing.T) {
	testenv.MustHave(t, schemaFile, schemaBegin, properties(t), schemaEnd, *update)
}

// properties are the lines of the schema.
func properties(t *testing.T) string {
	t.Helper()
	o, cmd := &agentOptions{}, &cobra.Command{}
	o.addFlags(cmd)
	for name := range notOfTheChart {
		if cmd.Flags().Lookup(name) == nil {
			t.Errorf("--%s is left out of the chart, and no flag has the name", name)
		}
	}
	var lines []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if notOfTheChart[f.Name] != "" || f.Hidden { // those without effect are hidden
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
	switch kind := f.Value.Type(); {
	case kind == "bool":
		return `{"type": "boolean"}`
	case kind == "number":
		return `{"type": "number"}`
	case kind == "duration":
		return `{"$ref": "#/definitions/duration"}`
	case f.DefValue != "" && f.DefValue != "[]": // nothing would be no value
		return `{"type": "string", "minLength": 1}`
	default:
		return `{"type": "string"}`
	}
}

package scenario

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/pkg/lb"
)

// What is written for a feature of a Service has to be read by the next agent. So
// every annotation and label that is read, every zone policy and every algorithm is
// in a scenario that restarts the agent.
func TestEveryFeatureIsInAScenarioThatRestarts(t *testing.T) {
	restarting := scenariosThatRestart(t)
	want := map[string]bool{}
	for _, name := range annotations(t) {
		want[`"`+name+`": `] = true
	}
	for _, policy := range lb.ZonePolicies() {
		want[`"headgate.dev/zone-policy": "`+policy+`"`] = true
	}
	for _, algorithm := range lb.Algorithms() {
		want[`"headgate.dev/algorithm": "`+algorithm+`"`] = true
	}
	for text := range want {
		if !strings.Contains(restarting, text) {
			t.Errorf("no scenario with %s restarts the agent", text)
		}
	}
}

// scenariosThatRestart returns the text of all scenarios with the command restart.
func scenariosThatRestart(t *testing.T) string {
	t.Helper()
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nrestart\n") {
			all.Write(text)
		}
	}
	return all.String()
}

// annotations returns every name below headgate.dev that the source of Services,
// EndpointSlices and Pods has as a constant.
func annotations(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../../pkg/source/convert/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, _ := strconv.Unquote(l.Value); strings.HasPrefix(s, "headgate.dev/") && s != "headgate.dev/" {
					names = append(names, s)
				}
			}
			return true
		})
	}
	if len(names) < 5 {
		t.Fatalf("found the annotations %q only", names)
	}
	return names
}

package datapath

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/lb"
)

// Numbers below are too common to say anything.
const leastTelling = 1 << 17

var (
	definition = regexp.MustCompile(`(?m)^#define ([A-Z][A-Z0-9_]+) +[^ (]|^\t([A-Z][A-Z0-9_]+)(?: =|,)`)
	number     = regexp.MustCompile(`\b(0x[0-9a-f]+|[0-9]+)[UL]*\b`)
)

// constants are those of C: names in lower case and without underscores, and numbers.
type constants struct {
	names   map[string]string
	numbers map[uint64]string
}

func readConstants(file, text string, into constants) {
	for _, m := range definition.FindAllStringSubmatch(text, -1) {
		name := m[1] + m[2]
		into.names[plain(name)] = name + " of " + file
	}
	for _, m := range number.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.ParseUint(m[1], 0, 64); err == nil && n >= leastTelling {
			into.numbers[n] = m[0] + " of " + file
		}
	}
}

func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// mirrored is a line for every constant of a Go file that C has under its name, and every
// telling number that C has, too. What is made of generated constants is free.
func mirrored(file *ast.File, c constants) (out []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if is := c.names[plain(name.Name)]; is != "" && i < len(n.Values) && literal(n.Values[i]) {
					out = append(out, fmt.Sprintf("%s is %s: take the generated constant", name.Name, is))
				}
			}
		case *ast.BasicLit:
			if v, err := strconv.ParseUint(n.Value, 0, 64); err == nil && c.numbers[v] != "" {
				out = append(out, fmt.Sprintf("%s is %s: name it in an enum and take the generated constant", n.Value, c.numbers[v]))
			}
		}
		return true
	})
	return out
}

// literal says whether an expression is made of numbers alone.
func literal(e ast.Expr) bool {
	is := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			is = is && n.Name == "iota"
		case *ast.BasicLit:
			is = is && n.Kind == token.INT
		}
		return true
	})
	return is
}

func TestNoConstantOfCIsWrittenAgainInGo(t *testing.T) {
	c := constants{map[string]string{}, map[uint64]string{}}
	headers, err := filepath.Glob("../../bpf/*/*.h")
	if err != nil || len(headers) == 0 {
		t.Fatalf("no headers: %v", err)
	}
	for _, h := range headers {
		text, err := os.ReadFile(h)
		if err != nil {
			t.Fatal(err)
		}
		readConstants(strings.TrimPrefix(h, "../../"), string(text), c)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_bpfel.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range mirrored(file, c) {
			t.Errorf("%s: %s", name, line)
		}
	}
}

func TestConstantsThatAreWrittenAgainAreReported(t *testing.T) {
	c := constants{map[string]string{}, map[uint64]string{}}
	readConstants("a.h", "#define VIEW_BITS 24\nenum e {\n\tFLOW_OLD = 1 << 1,\n\tFLOW_NEW,\n};\n... * 0x9e3779b1U;\n", c)
	file, err := parser.ParseFile(token.NewFileSet(), "", `package p
const (
	viewBits = 24
	flowOld = 1 << 1
	flowNew = headgateFlowNEW
	other = 24
	FlowOld = "old"
)
func hash(n uint32) uint32 { return n * 0x9e3779b1 }
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"viewBits is VIEW_BITS of a.h: take the generated constant",
		"flowOld is FLOW_OLD of a.h: take the generated constant",
		"0x9e3779b1 is 0x9e3779b1U of a.h: name it in an enum and take the generated constant",
	}
	if diff := cmp.Diff(want, mirrored(file, c)); diff != "" {
		t.Errorf("mirrored (-want +got):\n%s", diff)
	}
}

func TestAlgorithmsHaveOneOrder(t *testing.T) {
	types, err := builtInTypes()
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if err := types.TypeByName("algorithm", &enum); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, v := range enum.Values[:len(enum.Values)-1] { // the last one is how many there are
		if v.Value != uint64(i) {
			t.Errorf("%s is %d, want %d", v.Name, v.Value, i)
		}
		names = append(names, strings.ToLower(strings.TrimPrefix(v.Name, "ALGORITHM_")))
	}
	if diff := cmp.Diff(lb.Algorithms(), names); diff != "" {
		t.Errorf("algorithms (-pkg/lb +the object):\n%s", diff)
	}
}

// Package fences holds the tests that keep the repository in the shape that
// ARCHITECTURE.md describes: who may import what, and how long a file may be.
package fences

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// root is the repository, seen from this package.
const root = "../.."

// module prefixes the import path of every package of the product.
const module = "github.com/headgate/headgate/"

// A fence keeps a dependency in one place.
type fence struct {
	imports string   // import path, or the start of one up to a slash
	within  []string // the only folders that may import it directly
	reason  string
}

// fences are about the product: test files may import what they need, and the
// programs under tests/ too.
var fences = []fence{
	{"k8s.io", []string{"pkg/source"}, "everything else speaks pkg/lb, so that file mode and API mode are the same"},
	{"sigs.k8s.io", []string{"pkg/source"}, "everything else speaks pkg/lb, so that file mode and API mode are the same"},
	{"github.com/cilium/ebpf", []string{"pkg/datapath", "pkg/traffic/raw"}, "maps and programs have one owner, and byte order one file; pkg/traffic/raw makes packets with a program of its own"},
	{"github.com/vishvananda/netlink", []string{"pkg/netdev", "pkg/traffic"}, "devices have one owner; pkg/traffic builds topologies"},
	{module + "pkg/traffic", []string{"pkg/traffic", "cmd/headgate-bench"}, "the traffic generator is a program of its own: the privileged one links no plots, fonts and packet makers"},
	{"gonum.org", []string{"pkg/traffic/report"}, "drawing is for results; nothing that balances load needs it"},
	{"go.uber.org/zap", []string{"pkg/agent", "pkg/reconciler", "pkg/cli", "cmd"}, "libraries return what happened, the loop that decides logs it once"},
	{module + "pkg/datapath", []string{"pkg/agent", "pkg/cli", "pkg/migrate", "pkg/preflight", "pkg/traffic/cli"}, "the reconciler declares the interface it uses, the agent connects the two; pkg/preflight asks the parts before there is an agent"},
	{module + "pkg/source", []string{"pkg/source", "pkg/agent", "pkg/cli", "pkg/preflight"}, "the parts meet in pkg/lb and in the agent; pkg/preflight asks them before there is one"},
	{module + "pkg/agent", []string{"pkg/cli", "cmd"}, "the agent knows the others, none of them knows the agent"},
	{module + "pkg/migrate", []string{"pkg/cli"}, "an agent serves beside a kube-proxy, whoever leads the node from one to the other"},
	{module + "pkg/preflight", []string{"pkg/cli", "pkg/migrate"}, "what is looked at before there is an agent is no part of one"},
	{module + "pkg/cli", []string{"cmd/headgate"}, "the command line is the outermost layer"},
}

// pure packages, and those below them, need nothing but the standard library
// and each other, all the way down.
var pure = []string{"pkg/lb", "pkg/maglev", "pkg/plan"}

// The agent is privileged on every node: what draws, and what makes packets, is no
// part of its program, nor of what it depends on.
const slimProgram = "cmd/headgate"

var notSlim = []string{"gonum.org", "golang.org/x/image", "codeberg.org", "git.sr.ht", "github.com/google/gopacket", "github.com/gopacket", module + "pkg/traffic"}

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string // direct, without those of test files
	Deps       []string // transitive, likewise
}

func TestEveryDependencyStaysWhereItBelongs(t *testing.T) {
	for _, breach := range climbed(fences, mustList(t)) {
		t.Error(breach)
	}
}

func TestPurePackagesNeedOnlyTheStandardLibrary(t *testing.T) {
	for _, breach := range impure(pure, mustList(t)) {
		t.Error(breach)
	}
}

func TestTheAgentsProgramIsSlim(t *testing.T) {
	for _, breach := range dragged(slimProgram, notSlim, mustList(t)) {
		t.Error(breach)
	}
}

// largestProgram is in bytes. A single call that finds methods by name, such as to run a
// text/template, keeps all methods of all types: four million bytes.
const largestProgram = 26 << 20

func TestTheAgentsProgramIsSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headgate")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "./"+slimProgram)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > largestProgram {
		t.Errorf("%s has %d bytes, at most %d are right", slimProgram, info.Size(), largestProgram)
	}
}

func TestAProgramReportsWhatItDrags(t *testing.T) {
	program := pkg{ImportPath: module + "cmd/headgate", Deps: []string{"fmt", "gonum.org/v1/plot"}}
	want := []string{"cmd/headgate links gonum.org/v1/plot, which belongs to headgate-bench"}
	if diff := cmp.Diff(want, dragged("cmd/headgate", []string{"gonum.org"}, []pkg{program})); diff != "" {
		t.Errorf("dragged (-want +got):\n%s", diff)
	}
}

func TestAFenceReportsWhoClimbedIt(t *testing.T) {
	fences := []fence{{"k8s.io", []string{"pkg/source"}, "of a reason"}}
	for _, tc := range []struct {
		name string
		pkg  pkg
		want []string
	}{
		{"the folder itself is inside", pkg{ImportPath: module + "pkg/source", Imports: []string{"k8s.io/api/core/v1"}}, nil},
		{"a folder below is inside", pkg{ImportPath: module + "pkg/source/kube", Imports: []string{"k8s.io/api/core/v1"}}, nil},
		{"a folder that only starts alike is outside", pkg{ImportPath: module + "pkg/sources", Imports: []string{"k8s.io/api/core/v1"}},
			[]string{"pkg/sources imports k8s.io/api/core/v1, which belongs to pkg/source: of a reason"}},
		{"the dependency itself is outside", pkg{ImportPath: module + "pkg/lb", Imports: []string{"k8s.io"}},
			[]string{"pkg/lb imports k8s.io, which belongs to pkg/source: of a reason"}},
		{"a dependency that only starts alike is free", pkg{ImportPath: module + "pkg/lb", Imports: []string{"k8s.io2/api"}}, nil},
		{"programs under tests are free", pkg{ImportPath: module + "tests/bench", Imports: []string{"k8s.io/api"}}, nil},
		{"other people's packages are free", pkg{ImportPath: "example.org/x", Imports: []string{"k8s.io/api"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, climbed(fences, []pkg{tc.pkg})); diff != "" {
				t.Errorf("climbed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPurePackageReportsWhatItDrags(t *testing.T) {
	std := pkg{ImportPath: "fmt", Standard: true}
	zap := pkg{ImportPath: "go.uber.org/zap"}
	lb := pkg{ImportPath: module + "pkg/lb/sub"}
	for _, tc := range []struct {
		name string
		deps []string
		want []string
	}{
		{"the standard library is free", []string{"fmt"}, nil},
		{"pure packages are free", []string{module + "pkg/lb/sub"}, nil},
		{"another package of ours is not", []string{module + "pkg/agent"}, []string{"pkg/plan needs " + module + "pkg/agent, it may need only the standard library"}},
		{"a module is not", []string{"fmt", "go.uber.org/zap"}, []string{"pkg/plan needs go.uber.org/zap, it may need only the standard library"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := pkg{ImportPath: module + "pkg/plan", Deps: tc.deps}
			if diff := cmp.Diff(tc.want, impure([]string{"pkg/lb", "pkg/plan"}, []pkg{std, zap, lb, plan})); diff != "" {
				t.Errorf("impure (-want +got):\n%s", diff)
			}
		})
	}
}

// climbed is a line for every direct import across a fence.
func climbed(fences []fence, pkgs []pkg) []string {
	var breaches []string
	for _, p := range pkgs {
		folder, ours := strings.CutPrefix(p.ImportPath, module)
		if !ours || inside(folder, "tests") {
			continue
		}
		for _, imported := range p.Imports {
			for _, f := range fences {
				if inside(imported, f.imports) && !insideAny(folder, f.within) {
					breaches = append(breaches, fmt.Sprintf("%s imports %s, which belongs to %s: %s",
						folder, imported, strings.Join(f.within, ", "), f.reason))
				}
			}
		}
	}
	return breaches
}

// dragged is a line for everything that a program links and may not.
func dragged(program string, unwanted []string, pkgs []pkg) []string {
	var breaches []string
	for _, p := range pkgs {
		if p.ImportPath != module+program {
			continue
		}
		for _, dep := range p.Deps {
			if insideAny(dep, unwanted) {
				breaches = append(breaches, fmt.Sprintf("%s links %s, which belongs to headgate-bench", program, dep))
			}
		}
	}
	return breaches
}

// impure is a line for everything that a pure package needs and may not.
func impure(pure []string, pkgs []pkg) []string {
	free := make(map[string]bool)
	for _, p := range pkgs {
		folder, ours := strings.CutPrefix(p.ImportPath, module)
		free[p.ImportPath] = p.Standard || ours && insideAny(folder, pure)
	}
	var breaches []string
	for _, p := range pkgs {
		folder, ours := strings.CutPrefix(p.ImportPath, module)
		if !ours || !insideAny(folder, pure) {
			continue
		}
		for _, dep := range p.Deps {
			if !free[dep] {
				breaches = append(breaches, fmt.Sprintf("%s needs %s, it may need only the standard library", folder, dep))
			}
		}
	}
	return breaches
}

// inside says whether path is folder or below it.
func inside(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func insideAny(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return inside(path, f) })
}

// mustList is every package of the product and everything it depends on.
func mustList(tb testing.TB) []pkg {
	tb.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...")
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("list packages: %s\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			tb.Fatalf("decode the list of packages: %s", err)
		}
		pkgs = append(pkgs, p)
	}
	if !slices.ContainsFunc(pkgs, func(p pkg) bool { return p.ImportPath == module+"pkg/lb" }) {
		tb.Fatalf("list packages: %d of them, without %spkg/lb", len(pkgs), module)
	}
	return pkgs
}

package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/metrics"

	"go.uber.org/zap"
)

// scopes is what each kind of problem makes unwell, by the function that makes it. A node is unwell by what it
// does not do itself. What an object says, and what a backend does, never makes it so.
var scopes = map[string]string{
	"agent.Config.hashKey":           "node", // the key of hashes is not kept
	"agent.descriptors.problems":     "node",
	"agent.deviceList.wrong":         "node",
	"agent.ejectedProblems":          "backend",
	"agent.live.problems":            "node", // faults for which it refuses clients
	"agent.problems.setUnserved":     "node", // a port of health checks
	"agent.restored.problems":        "node",
	"agent.statusServer.Force":       "node",
	"agent.statusServer.keepDrained": "node",
	"agent.statusServer.unwritten":   "node",
	"kube.Health.Problems":           "node",
	"kube.Source.mayNotTell":         "node",
	"kube.Source.refused":            "node",
	"kube.Visitor.askVersion":        "node",
	"manifest.Source.look":           "node", // the directory
	"manifest.watch.problems":        "node",
	"peers.Prober.Problems":          "node object", // no answers to others, and homes of each Service
	"plan.Planner.shortage":          "node object", // a full map, and a Service that asks for more than it holds
	"plan.change.lacksRoom":          "node",
	"reconciler.ahead.problem":       "node",
	"reconciler.refusal.problem":     "node",   // the kernel refuses
	"lb.MoreProblems":                "object", // Bounded gives it the scope of the others
	"convert.Problems":               "object",
	"convert.findings.add":           "object",
	"lb.Service.refused":             "object",
	"lb.oversize":                    "object",
	"manifest.decoder.list":          "object",
	"manifest.decoder.object":        "object",
	"manifest.decoder.single":        "object",
	"manifest.document.broken":       "object",
	"manifest.document.reject":       "object",
	"manifest.document.toJSON":       "object",
	"manifest.duplicates":            "object",
	"manifest.file.add":              "object",
	"manifest.readFile":              "object",
	"manifest.unreadable":            "object",
	"plan.Planner.SetServiceCIDRs":   "object",
	"plan.conflict":                  "object",
	"probe.problem":                  "object",
	"proxyconfig.CheckNodeName":      "object",
	"proxyconfig.decode":             "object",
	"proxyconfig.reader.fail":        "object",
	"proxyconfig.reader.warn":        "object",
}

func TestEachKindOfProblemHasItsScope(t *testing.T) {
	got := map[string]string{}
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				if all := scopesIn(f, file.Name.Name == "lb"); all != "" {
					got[file.Name.Name+"."+nameOf(f)] = all
				}
			}
		}
		return nil
	})
	if diff := cmp.Diff(scopes, got); diff != "" || err != nil {
		t.Errorf("%v; problems have scopes (-want +got):\n%s", err, diff)
	}
}

// nameOf returns the name of a function, with its receiver.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if star, is := of.(*ast.StarExpr); is {
		of = star.X
	}
	return of.(*ast.Ident).Name + "." + f.Name.Name
}

// scopesIn returns the scopes of problems that a function makes.
func scopesIn(f *ast.FuncDecl, ofLB bool) string {
	found := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			kind := n.Type
			if list, is := kind.(*ast.ArrayType); is && len(n.Elts) > 0 {
				kind = list.Elt
				for _, e := range n.Elts {
					if one, is := e.(*ast.CompositeLit); is && isProblem(kind, ofLB) {
						found[scopeOf(one)] = true
					}
				}
				return true
			}
			if isProblem(kind, ofLB) && len(n.Elts) > 0 {
				found[scopeOf(n)] = true
			}
		case *ast.AssignStmt:
			if to, is := n.Lhs[0].(*ast.SelectorExpr); is && to.Sel.Name == "Scope" {
				found[wordOf(n.Rhs[0])] = true
			}
		}
		return true
	})
	var all []string
	for _, scope := range []string{"node", "object", "backend"} {
		if found[scope] {
			all = append(all, scope)
		}
	}
	return strings.Join(all, " ")
}

func isProblem(kind ast.Expr, ofLB bool) bool {
	switch kind := kind.(type) {
	case *ast.SelectorExpr:
		of, is := kind.X.(*ast.Ident)
		return is && of.Name == "lb" && kind.Sel.Name == "Problem"
	case *ast.Ident:
		return ofLB && kind.Name == "Problem"
	}
	return false
}

func scopeOf(literal *ast.CompositeLit) string {
	for _, e := range literal.Elts {
		if pair, is := e.(*ast.KeyValueExpr); is && pair.Key.(*ast.Ident).Name == "Scope" {
			return wordOf(pair.Value)
		}
	}
	return "object"
}

// wordOf returns the scope that an expression such as lb.ScopeNode names.
func wordOf(e ast.Expr) string {
	if s, is := e.(*ast.SelectorExpr); is {
		return strings.ToLower(strings.TrimPrefix(s.Sel.Name, "Scope"))
	}
	return "?"
}

// What counts the problems that are not told has their scope.
func TestScopesReachTheReport(t *testing.T) {
	dir := t.TempDir()
	a := newStatusServer(Config{StateDir: dir, Datapath: datapath.Config{Root: "/pins"}}, zap.NewNop(), nil, metrics.New("test"))
	many := make([]lb.Problem, lb.MostTogether+2)
	for i := range many {
		many[i] = lb.Problem{Scope: lb.ScopeBackend, Object: "Service default/web", Reason: "is avoided"}
	}
	a.problems.setEjected(many)
	a.Problems([]lb.Problem{{Object: "Service default/web", Reason: "is wrong"}})
	a.problems.setFiles(descriptors{open: 10, limit: 10}.problems("node-a"))
	r, err := ReadReport(dir, "/pins")
	counts := map[string]int{}
	for _, p := range r.Problems {
		counts[p.Scope]++
	}
	if diff := cmp.Diff(map[string]int{"node": 1, "object": 1, "backend": lb.MostTogether + 1}, counts); diff != "" || err != nil {
		t.Errorf("%v; scopes (-want +got):\n%s", err, diff)
	}
}

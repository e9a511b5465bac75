// Package scenario tells stories of Services as scripts: YAML in, the content
// of the maps out. Each runs twice, on maps in memory and on those of the
// kernel, with the real source, planner and reconciler above, in simulated time
// and with a datapath that fails every now and then.
package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/tests/testenv"
)

var update = flag.Bool("update", false, "write what is dumped into the scripts; read the difference before you commit it")

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

func TestScenariosOnMapsInMemory(t *testing.T) {
	runScripts(t, *update, func(testing.TB) opener {
		m := &memory{}
		return func(plan.Sizes) (reconciler.Datapath, error) { return m, nil }
	})
}

func TestScenariosOnTheKernelsMaps(t *testing.T) {
	testenv.Need(t)
	runScripts(t, false, func(tb testing.TB) opener {
		cfg := datapath.Config{Root: testenv.BPFRoot(tb), Cgroup: testenv.Cgroup(tb), Node: nodeName, Version: "test", SocketEntries: 1024}
		return func(sizes plan.Sizes) (reconciler.Datapath, error) {
			cfg.Sizes = sizes
			return datapath.Open(cfg)
		}
	})
}

// opener opens the same maps each time.
type opener func(plan.Sizes) (reconciler.Datapath, error)

// runScripts runs every script in a bubble of simulated time.
func runScripts(t *testing.T, update bool, newMaps func(testing.TB) opener) {
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("found no scripts: %v", err)
	}
	for _, script := range scripts {
		name := strings.TrimSuffix(filepath.Base(script), ".txtar")
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				testscript.RunT(bubble{t}, testscript.Params{
					Files:               []string{script},
					UpdateScripts:       update,
					RequireUniqueNames:  true,
					RequireExplicitExec: true,
					Cmds:                commands,
					Setup: func(env *testscript.Env) error {
						n := newNode(name, env.WorkDir, newMaps(t))
						env.Values[nodeKey{}] = n
						env.Defer(n.stop)
						return nil
					},
				})
			})
		})
	}
}

// bubble runs a script in the test's own goroutine: simulated time is for one
// test only.
type bubble struct{ *testing.T }

func (b bubble) Run(_ string, script func(testscript.T)) { script(b) }
func (b bubble) Parallel()                               {}
func (b bubble) Verbose() bool                           { return testing.Verbose() }

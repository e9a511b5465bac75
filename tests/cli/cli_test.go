// Package cli tests the command line as its users meet it: scripts run the
// program and look at what it prints and how it ends.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/cli"
	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/pkg/source/manifest"
	bench "github.com/headgate/headgate/pkg/traffic/cli"
	"github.com/headgate/headgate/tests/testenv"
)

var update = flag.Bool("update", false, "write what is printed into the scripts; read the difference before you commit it")

// TestMain lets this program be both of ours, too.
func TestMain(m *testing.M) {
	testscript.Main(machine{m}, map[string]func(){
		"headgate":       func() { os.Exit(cli.Run(os.Args[1:], "v1.2.3", os.Stdout, os.Stderr)) },
		"headgate-next":  func() { os.Exit(cli.Run(os.Args[1:], "v1.2.4", os.Stdout, os.Stderr)) },
		clientProgram:    client,
		"headgate-bench": func() { os.Exit(bench.Run(os.Args[1:], "v1.2.3", os.Stdout, os.Stderr)) },
	})
}

// machine runs the tests on a machine of their own.
type machine struct{ *testing.M }

func (m machine) Run() int { return testenv.Main(m.M) }

func TestTheCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", UpdateScripts: *update, RequireUniqueNames: true})
}

// Scripts of this test find a machine in $CGROUP and $BPFROOT.
func TestTheCommandLineOnAKernel(t *testing.T) {
	testenv.Need(t)
	scripts, err := filepath.Glob("testdata/kernel/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("found no scripts: %v", err)
	}
	deadline, _ := t.Deadline()
	for _, script := range scripts {
		// One after another: there is one cgroup, and agents lock it.
		name := strings.TrimSuffix(filepath.Base(script), ".txtar")
		t.Run(name, func(t *testing.T) {
			p := &place{t: t}
			testscript.RunT(alone{t}, testscript.Params{
				Files: []string{script}, UpdateScripts: *update, RequireUniqueNames: true, Deadline: deadline,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"load": load, "ready": ready, "answers": answers, "exits": exits, "nobody": nobody, "problem": problem, "orphans": orphans, "forget": forget, "remember": remember, "tracing": tracing, "dial": dial, "hold": hold, "fits": fits,
					"outside": p.outside, "pod": p.pod, "connect": p.connect, "shows": shows, "eventually": eventually, "asks": asks, "screen": p.screen, "podnet": podnet, "packets": packets, "stopped": stopped, "goes-on": goesOn,
				},
				Setup: func(env *testscript.Env) error {
					env.Setenv("CGROUP", testenv.Cgroup(t))
					env.Setenv("BPFROOT", testenv.BPFRoot(t))
					env.Setenv("STATE_DIRECTORY", t.TempDir())
					return nil
				},
			})
		})
	}
}

// alone runs a script in the test's own goroutine.
type alone struct{ *testing.T }

func (a alone) Run(_ string, script func(testscript.T)) { script(a) }
func (a alone) Parallel()                               {}
func (a alone) Verbose() bool                           { return testing.Verbose() }

// load DIR brings the Services of a directory into force, as an agent does that
// has ended since.
func load(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(loadManifests(ts.MkAbs(args[0]), ts.Getenv("CGROUP"), ts.Getenv("BPFROOT")))
}

func loadManifests(dir, cgroup, root string) error {
	return bringIntoForce(cgroup, root, func(ctx context.Context, inbox *reconciler.Inbox) error {
		return manifest.New(dir, "node-a").Run(ctx, inbox.Update)
	})
}

// bringIntoForce has programs in force that balance what a source says.
func bringIntoForce(cgroup, root string, source func(context.Context, *reconciler.Inbox) error) error {
	dp, err := datapath.Open(datapath.Config{
		Root: root, Cgroup: cgroup, Node: "node-a", Version: "v1.2.3", Sizes: datapath.DefaultSizes, SocketEntries: 1024,
	})
	if err != nil {
		return err
	}
	defer dp.Close()
	inbox := reconciler.NewInbox(nil)
	r, err := reconciler.New(zap.NewNop(), inbox, dp, plan.Sizes{})
	if err != nil {
		return err
	}
	inbox.SetNodeAddresses(map[netip.Addr]plan.AddressKind{netip.MustParseAddr("192.0.2.1"): plan.NodeAddress})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- source(ctx, inbox) }()
	go func() {
		select {
		case <-r.Ready():
			cancel()
		case <-ctx.Done():
		}
	}()
	failed := r.Run(ctx)
	cancel()
	if err := errors.Join(failed, <-ended); err != nil {
		return err
	}
	select {
	case <-r.Ready():
		return nil
	default:
		return ctx.Err()
	}
}

// ready waits until an agent runs and has put everything in force.
func ready(ts *testscript.TestScript, _ bool, _ []string) {
	deadline := time.Now().Add(time.Minute)
	for {
		err := lookReady(ts.Getenv("BPFROOT"))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the agent does not get ready: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// answers waits until an agent serves and says so.
func answers(ts *testscript.TestScript, _ bool, _ []string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := (&agent.Place{StateDir: ts.Getenv("STATE_DIRECTORY")}).AskReady(context.Background())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("the agent does not answer: %v", err)
		}
	}
}

func lookReady(root string) error {
	i, err := datapath.Inspect(root)
	if err != nil {
		return err
	}
	defer i.Close()
	s, err := i.Status()
	if err != nil {
		return err
	}
	for _, h := range s.Hooks {
		if !h.Attached {
			return fmt.Errorf("%s is not attached", h.Name)
		}
	}
	if !s.Agent {
		return fmt.Errorf("no agent runs")
	}
	return nil
}

// problem waits until the agent says that something is wrong.
func problem(ts *testscript.TestScript, _ bool, _ []string) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		r, err := agent.ReadReport(ts.Getenv("STATE_DIRECTORY"), ts.Getenv("BPFROOT"))
		ts.Check(err)
		if len(r.Problems) > 0 {
			return
		}
	}
	ts.Fatalf("the agent says of no problem")
}

// orphans says whether there are namespaces of benches that have ended. Those of
// other benches, which may be under way, are theirs.
func orphans(ts *testscript.TestScript, neg bool, _ []string) {
	paths, err := filepath.Glob("/run/netns/headgate-bench-*")
	ts.Check(err)
	dead := slices.DeleteFunc(paths, func(path string) bool {
		pid := strings.Split(filepath.Base(path), "-")[2]
		_, err := os.Stat(filepath.Join("/proc", pid))
		return err == nil
	})
	if (len(dead) == 0) != neg {
		ts.Fatalf("namespaces of benches that have ended: %q", dead)
	}
}

// exits CODE COMMAND... runs a command that ends with an exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("ended with %d", code)
	}
}

// nobody COMMAND... runs a command as somebody who is not root.
func nobody(ts *testscript.TestScript, neg bool, args []string) {
	dir, err := os.MkdirTemp("", "headgate-nobody-")
	ts.Check(err)
	ts.Defer(func() { os.RemoveAll(dir) })
	ts.Check(os.Chmod(dir, 0o755))
	program, err := os.ReadFile("/proc/self/exe")
	ts.Check(err)
	path := filepath.Join(dir, args[0])
	ts.Check(os.WriteFile(path, program, 0o755))
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Run(); (err == nil) == neg {
		ts.Fatalf("ended with %v", err)
	}
}

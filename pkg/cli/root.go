// Package cli is the command line of headgate: one file for each noun or verb.
// Nouns show what is there, verbs change it.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/pkg/agent"
	"github.com/headgate/headgate/pkg/command"
	"github.com/headgate/headgate/pkg/datapath"
)

// env is the world that commands see, and the flags that all of them have.
type env struct {
	command.Output
	version string
	bpfRoot string
	state   string // directory

	complaints io.Writer   // nil for who has no reader of them
	late       atomic.Bool // that the agent does not answer in time is said

	until context.Context // ends questions about backends, nil for how long each may take
}

// place is where the agent can be asked.
func (e *env) place() *agent.Place { return &agent.Place{StateDir: e.state, BPFRoot: e.bpfRoot} }

// asking returns what ends questions to the agent about backends.
func (e *env) asking() context.Context {
	if e.until == nil {
		return context.Background()
	}
	return e.until
}

// Exit codes beside 0 and command.ExitWrong. Scripts know by them what a person
// reads.
const (
	exitNotLoaded = 2 // nothing of Headgate is in the kernel
	exitDegraded  = 3 // headgate status shows something that is not well, headgate check a failure
)

// Run runs a command line and returns the exit code of the process: 0, or
// another with one line on stderr.
func Run(args []string, version string, stdout, stderr io.Writer) int {
	return command.Run(newRoot(&env{version: version, complaints: stderr}), args, stdout, stderr, exitCode)
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, datapath.ErrNotLoaded):
		return exitNotLoaded
	case errors.Is(err, errDegraded):
		return exitDegraded
	default:
		return command.ExitWrong
	}
}

// errDegraded ends a command that has shown what is not well.
var errDegraded = fmt.Errorf("degraded%w", command.ErrSilent)

func newRoot(e *env) *cobra.Command {
	root := command.NewRoot("headgate", e.version, "Kubernetes Services, balanced in the kernel",
		`Headgate balances Kubernetes Services in the kernel, beside any CNI.

Nouns (service, frontend, backend, table, flow, affinity, range, device, peer, map, problem) show what
the kernel holds, whether or not an agent runs: each has list and show. status says whether
this node is well, top which Services have traffic, explain why a client gets what it gets, diff whether
the kernel holds what it should; ui shows it to a browser.
The verb check looks at a node before anything is installed, migrate leads it from kube-proxy and back,
ready asks a running agent; agent, drain, undrain, flush, log-level and cleanup act; sysdump collects all of this in a file.
The commands demo and bench run headgate-bench, the traffic generator, where it is installed.`)
	root.TraverseChildren = true // flags before bench are not those of headgate-bench
	flags := root.PersistentFlags()
	flags.StringVar(&e.bpfRoot, "bpf-root", datapath.DefaultRoot, "directory of pins in a BPF file system")
	flags.StringVar(&e.state, "state-dir", cmp.Or(os.Getenv("STATE_DIRECTORY"), agent.DefaultStateDir), "directory of files that outlive the agent")
	e.AddFlags(flags)
	e.AddFormat(flags)
	for _, g := range groups(e) {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.AddCommand(newMakeCalls())
	root.SetHelpCommandGroupID(aboutItself)
	root.SetCompletionCommandGroupID(aboutItself)
	command.RefuseUnknownShells(root)
	command.HelpOf(root)
	command.CompleteFlags(root)
	return root
}

// group is commands that the help shows together.
type group struct {
	title    string
	commands []*cobra.Command
}

// aboutItself is the group of commands that say something of the program alone.
const aboutItself = "This program"

func groups(e *env) []group {
	return []group{
		{"What the kernel holds, each with list and show", []*cobra.Command{
			newService(e), newFrontend(e), newBackend(e), newTable(e), newFlow(e), newAffinity(e), newRange(e), newDevice(e), newPeer(e), newMap(e), newProblem(e),
		}},
		{"How it is, and why", []*cobra.Command{newStatus(e), newExplain(e), newTop(e), newTrace(e), newDiff(e), newUI(e), newSysdump(e)}},
		{"What the agent of this node is to do", []*cobra.Command{newDrain(e), newUndrain(e), newFlush(e), newLogLevel(e), newReady(e)}},
		{"Installation", []*cobra.Command{newCheck(e), newMigrate(e), newAgent(e), newCleanup(e)}},
		{"Traffic", []*cobra.Command{
			newElsewhere("demo", "Show Headgate at work in network namespaces of its own (headgate-bench)"),
			newElsewhere("bench", "Send traffic and measure rates, latencies and errors (headgate-bench)"),
		}},
		{aboutItself, []*cobra.Command{command.NewVersion(&e.Output, "headgate", e.version)}},
	}
}

// Command returns the commands, for what describes them: a page, man pages.
func Command(version string) *cobra.Command { return newRoot(&env{version: version}) }

package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/pkg/agent"
)

// stopped stops the agent, until goes-on or the end of the script.
func stopped(ts *testscript.TestScript, _ bool, _ []string) {
	live, err := (&agent.Place{StateDir: ts.Getenv("STATE_DIRECTORY")}).AskLive(context.Background())
	ts.Check(err)
	ts.Setenv("AGENT", strconv.Itoa(live.PID))
	ts.Defer(func() { _ = syscall.Kill(live.PID, syscall.SIGCONT) }) // fails where it has ended
	ts.Check(syscall.Kill(live.PID, syscall.SIGSTOP))
	for end := time.Now().Add(time.Minute); !allStopped(ts, live.PID); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("threads of the agent go on")
		}
	}
}

// allStopped says whether no thread of a process goes on.
func allStopped(ts *testscript.TestScript, pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	ts.Check(err)
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		ts.Check(err)
		if !bytes.Contains(status, []byte("\nState:\tT")) {
			return false
		}
	}
	return len(threads) > 0
}

// goesOn lets a stopped agent go on.
func goesOn(ts *testscript.TestScript, _ bool, _ []string) {
	pid, err := strconv.Atoi(ts.Getenv("AGENT"))
	ts.Check(err)
	ts.Check(syscall.Kill(pid, syscall.SIGCONT))
}

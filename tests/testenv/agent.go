package testenv

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
)

// agentBinary builds headgate once, as make build does.
var agentBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "headgate-agent-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", dir, "github.com/headgate/headgate/cmd/headgate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("build headgate: %w\n%s", err, out)
	}
	builtIn = dir
	return filepath.Join(dir, "headgate"), nil
})

// builtIn is what agentBinary leaves for Main to remove.
var builtIn string

func removeAgentBinary() {
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
}

// Agent is the real program, which can be killed and started again.
type Agent struct {
	Binary string
	Dir    string // of manifests
	Root   string // of pins
	Cgroup string
	// SocketEntries is a load-time constant: with another value the next start is an
	// upgrade in place.
	SocketEntries int
	Flags         []string              // beside those that every agent needs
	Run           func(*exec.Cmd) error // starts the process, perhaps in another network namespace
	Ready         <-chan struct{}       // closed when everything the agent read is in force
	Log           *LockedBuffer         // of all agents, one after the other

	tb  testing.TB
	cmd *exec.Cmd
}

// NewAgent prepares an agent with manifests, by file name, but does not start
// it.
func NewAgent(tb testing.TB, manifests map[string]string) *Agent {
	tb.Helper()
	a := &Agent{tb: tb, Dir: tb.TempDir(), Root: BPFRoot(tb), Cgroup: Cgroup(tb), Log: &LockedBuffer{}, SocketEntries: 1 << 12, Run: (*exec.Cmd).Start}
	var err error
	if a.Binary, err = agentBinary(); err != nil {
		tb.Fatal(err)
	}
	for name, text := range manifests {
		a.Write(name, text)
	}
	tb.Cleanup(func() {
		a.Kill()
		if tb.Failed() {
			tb.Logf("the agents say:\n%s", a.Log)
		}
	})
	return a
}

// Write puts a manifest in place in one step.
func (a *Agent) Write(name, text string) {
	a.tb.Helper()
	next := filepath.Join(a.tb.TempDir(), name)
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		a.tb.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(a.Dir, name)); err != nil {
		a.tb.Fatal(err)
	}
}

// Remove takes a manifest away.
func (a *Agent) Remove(name string) {
	a.tb.Helper()
	if err := os.Remove(filepath.Join(a.Dir, name)); err != nil {
		a.tb.Fatal(err)
	}
}

// Start starts the agent and waits until everything it read is in force.
func (a *Agent) Start() {
	a.tb.Helper()
	a.Launch()
	select {
	case <-a.Ready:
	case <-time.After(time.Minute):
		a.tb.Fatal("the agent is not ready after a minute")
	}
}

// Launch starts the agent.
func (a *Agent) Launch() {
	a.tb.Helper()
	a.cmd = exec.Command(a.Binary, append([]string{"agent", "--manifests", a.Dir, "--node-name", "node-a", "--cgroup", a.Cgroup,
		"--bpf-root", a.Root, "--socket-entries", fmt.Sprint(a.SocketEntries), "--log-format", "json"}, a.Flags...)...)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := a.cmd.StderrPipe()
	if err != nil {
		a.tb.Fatal(err)
	}
	if err := a.Run(a.cmd); err != nil {
		a.tb.Fatal(err)
	}
	ready := make(chan struct{})
	a.Ready = ready
	go func() {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20) // an agent that is not read from waits
		for lines.Scan() {
			fmt.Fprintln(a.Log, lines.Text())
			if strings.Contains(lines.Text(), `"msg":"ready"`) {
				close(ready)
			}
		}
	}()
}

// Kill ends the agent as kill -9 does.
func (a *Agent) Kill() {
	if a.cmd == nil {
		return
	}
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait() // says only that it was killed
	a.cmd = nil
}

// Stopped has something happen while the process is stopped. A signal returns before all threads have stopped,
// which go on for a while on a busy machine.
func (a *Agent) Stopped(happens func()) {
	a.tb.Helper()
	signal := func(s syscall.Signal) {
		a.tb.Helper()
		if err := syscall.Kill(a.PID(), s); err != nil {
			a.tb.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(a.PID(), &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		a.tb.Fatalf("the agent has not stopped: status %#x: %v", status, err)
	}
	happens()
	signal(syscall.SIGCONT)
}

// statusDegraded is the exit code of headgate status where not all is well, such
// as where no agent runs.
const statusDegraded = 3

// Status is what headgate status -j says.
func (a *Agent) Status() (s struct {
	Agent     bool              `json:"agent"`
	Writes    uint64            `json:"writes"`
	Frontends int               `json:"frontends"`
	Backends  int               `json:"backends"`
	Object    string            `json:"object"`
	Counters  map[string]uint64 `json:"counters"`
	Drops     map[string]uint64 `json:"drops"`
	Hooks     []datapath.Hook
	Devices   []datapath.Device
	Live      *struct{ Starting bool }
}) {
	a.tb.Helper()
	out := a.Output("status", "-j")
	if err := json.Unmarshal(out, &s); err != nil {
		a.tb.Fatalf("headgate status says %q: %v", out, err)
	}
	return s
}

// Begun starts the agent, and waits until it has tried its devices, too. It returns how many writes it has made.
func (a *Agent) Begun() (writes uint64) {
	a.tb.Helper()
	a.Start()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		s := a.Status()
		if s.Live != nil && !s.Live.Starting {
			return s.Writes
		}
		if time.Now().After(end) {
			a.tb.Fatal("the agent still starts after a minute")
		}
	}
}

// Output runs headgate with arguments, and returns what it prints.
func (a *Agent) Output(args ...string) []byte {
	a.tb.Helper()
	out, err := exec.Command(a.Binary, append(args, "--bpf-root", a.Root)...).Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() != statusDegraded:
		a.tb.Fatalf("headgate %s: %v: %s", args[0], err, exit.Stderr)
	case err != nil && exit == nil:
		a.tb.Fatalf("headgate %s: %v", args[0], err)
	}
	return out
}

// PID returns the number of the process, 0 if it does not run.
func (a *Agent) PID() int {
	if a.cmd == nil {
		return 0
	}
	return a.cmd.Process.Pid
}

// LockedBuffer is a buffer that processes may write to while a test reads it.
type LockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to the buffer.
func (l *LockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what has been written so far.
func (l *LockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Len returns how many bytes have been written so far.
func (l *LockedBuffer) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Len()
}

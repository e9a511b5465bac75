package controlplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headgate/headgate/pkg/traffic"
)

// stopLimit is how long a process may take to end before it is killed.
const stopLimit = 10 * time.Second

// Process is a program that runs in a network namespace. It dies with the
// namespace and with this process.
type Process struct {
	name  string
	log   string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
}

// StartProcess starts a program in a namespace and, unless it is nil, a cgroup.
// What it writes goes to a file named for it, in dir.
func StartProcess(ns *traffic.Namespace, cgroup *traffic.Cgroup, dir, name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{name: name, log: filepath.Join(dir, name+".log"), cmd: cmd, ended: make(chan struct{})}
	file, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	if cgroup != nil {
		cgroup.Adopt(cmd)
	}
	if err := ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // how it ended stands in ProcessState
		close(p.ended)
	}()
	return p, nil
}

// PID returns the ID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended, for whatever reason.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Stop asks the process to end, and kills it if it does not.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopLimit):
		p.Kill()
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Tail returns the end of what the process has written.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return tail(string(text))
}

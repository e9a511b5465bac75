package contender

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a program that can be ended and started again.
type process struct {
	name  string
	start func() (*exec.Cmd, error)
	pid   atomic.Int64 // 0 while there is none
	cmd   *exec.Cmd
	over  chan struct{} // closed when the present one is
	err   error         // how it ended, to be read after over
}

// begin starts the program.
func (p *process) begin() error {
	cmd, err := p.start()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.over = cmd, make(chan struct{})
	p.pid.Store(int64(cmd.Process.Pid))
	go func() {
		p.err = cmd.Wait()
		p.pid.Store(0)
		close(p.over)
	}()
	return nil
}

// end ends the program: politely at first, then not.
func (p *process) end() error {
	const patience = 5 * time.Second
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.over
	if p.err != nil && !wasTerminated(p.err) {
		return fmt.Errorf("end %s: %w", p.name, p.err)
	}
	return nil
}

// wasTerminated says that a program ended as it was asked to, by the signal itself:
// kube-proxy does.
func wasTerminated(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == unix.SIGTERM
}

// kill ends the program at once.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.over
	return nil
}

// ended says that the program has ended by itself, and how.
func (p *process) ended() error {
	select {
	case <-p.over:
		return fmt.Errorf("%s has ended: %v", p.name, p.err)
	default:
		return nil
	}
}

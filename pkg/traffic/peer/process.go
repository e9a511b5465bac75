package peer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// process is a program that can be ended and started again.
type process struct {
	start func() (*exec.Cmd, error)
	cmd   *exec.Cmd
	over  chan struct{} // closed when the present one is
	err   error         // how it ended, to be read after over
}

// begin starts the program.
func (p *process) begin() error {
	cmd, err := p.start()
	if err != nil {
		return fmt.Errorf("start agent: %w", err)
	}
	p.cmd, p.over = cmd, make(chan struct{})
	go func() {
		p.err = cmd.Wait()
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
	if p.err != nil {
		return fmt.Errorf("end agent: %w", p.err)
	}
	return nil
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
		return fmt.Errorf("the agent has ended: %v", p.err)
	default:
		return nil
	}
}

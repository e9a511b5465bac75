package programs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/tests/testenv"
)

// patience is how long a client may take.
const patience = 20 * time.Second

// client is who asks by a path. What it starts ends with it.
type client struct {
	*rig
	path
	at  netip.AddrPort // the Service
	ctx context.Context
}

// process is a program with which a client talks by lines.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // that it prints, until it closes its output
	said  *testenv.LockedBuffer
	ctx   context.Context
	ended error // once over is closed
	over  chan struct{}
}

// start starts a program where the client is.
func (c *client) start(name string, args ...string) (*process, error) {
	cmd := exec.CommandContext(c.ctx, name, args...)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // those that it started, too
	cmd.WaitDelay = time.Second
	p := &process{name: name, cmd: cmd, lines: make(chan string, 1<<16), said: &testenv.LockedBuffer{}, ctx: c.ctx, over: make(chan struct{})}
	if c.balanced {
		c.cgroup(c.machine).Adopt(cmd)
	}
	out, printed := io.Pipe()
	cmd.Stdout, cmd.Stderr = printed, p.said
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.topology.Namespace(c.machine).Start(cmd); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
		close(p.lines)
	}()
	go func() {
		p.ended = cmd.Wait()
		_ = printed.Close()
		close(p.over)
	}()
	return p, nil
}

// says sends the program a line.
func (p *process) says(line string) error {
	_, err := io.WriteString(p.stdin, line+"\n")
	return p.failed(err, "take "+line)
}

// hears waits for a line with a text, and returns it.
func (p *process) hears(text string) (string, error) {
	for {
		select {
		case line, open := <-p.lines:
			if !open {
				<-p.over
				return "", p.failed(errors.Join(io.EOF, p.ended), "print "+text)
			}
			if strings.Contains(line, text) {
				return line, nil
			}
		case <-p.ctx.Done():
			return "", p.failed(p.ctx.Err(), "print "+text)
		}
	}
}

// ends closes the input of the program and waits until it has succeeded.
func (p *process) ends() error {
	_ = p.stdin.Close() // it may have ended
	<-p.over            // with the context, at the latest
	return p.failed(p.ended, "succeed")
}

func (p *process) failed(err error, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s does not %s: %w: %s", p.name, what, err, p.said)
}

// run runs a program to its end.
func (c *client) run(name string, args ...string) error {
	p, err := c.start(name, args...)
	if err != nil {
		return err
	}
	return p.ends()
}

// twice does something before and after another backend comes and goes.
func (c *client) twice(do func(line string) error) error {
	if err := do("before the change"); err != nil {
		return err
	}
	if err := c.change(); err != nil {
		return err
	}
	return do("after the change")
}

// echoed has what is said to a program come back, before and after the change.
func (c *client) echoed(p *process) error {
	return c.twice(func(line string) error {
		if err := p.says(line); err != nil {
			return err
		}
		_, err := p.hears(line)
		return err
	})
}

package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
)

// Place is where an agent can be asked.
type Place struct {
	StateDir string
	BPFRoot  string // tells whether an agent runs
}

// How long an agent may take to answer: at once, or once it has looked at everything.
const (
	askTimeout  = 3 * time.Second
	lookTimeout = 50 * time.Second
)

// request is what the agent is asked.
type request struct {
	method, what string
	patience     time.Duration
	order        string // the command that shows what an order did, "" for a question
}

// look is a question that takes the agent longer.
func look(what string) request { return request{http.MethodGet, what, lookTimeout, ""} }

// Silence is the error of an agent that does not answer in time, which it names with the state of its process.
type Silence string

func (s Silence) Error() string {
	return "agent " + string(s) + ": look at its process, and at its log"
}

// Is says that it is a deadline that was exceeded.
func (s Silence) Is(target error) bool { return target == context.DeadlineExceeded }

// ask asks the agent, and has the answer read.
func (p *Place) ask(ctx context.Context, q request, read func(*http.Response) error) error {
	began := time.Now()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer time.AfterFunc(q.patience, func() { end(context.DeadlineExceeded) }).Stop()
	conn, err := net.Dial("unix", p.socket()) // the agent need not accept it for that
	if errors.Is(err, unix.EAGAIN) {
		return Silence("at " + p.socket() + " has not answered those that asked before, and takes no more")
	}
	if err != nil {
		return p.unanswered(ctx, err)
	}
	defer conn.Close()
	if q.patience > askTimeout {
		go p.watch(ctx, end)
	}
	// Where the context ends the agent can write no more, and what it has written is still read: so an agent that begins
	// to carry out an order is heard, or finds that it must not.
	defer context.AfterFunc(ctx, func() {
		_ = conn.SetWriteDeadline(time.Now()) // an order may be longer than what the kernel keeps for the agent
		_ = conn.(*net.UnixConn).CloseRead()  // fails where the agent has closed it
	})()
	resp, begun, err := q.send(conn)
	if err == nil {
		if err = read(resp); err == nil || ctx.Err() == nil {
			return err
		}
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		err = silence(conn, time.Since(began))
	} else {
		err = p.unanswered(ctx, err)
	}
	if q.order == "" {
		return err
	}
	becomes := "is not carried out"
	if begun {
		becomes = "may be carried out all the same: " + q.order + " shows it"
	}
	return fmt.Errorf("%w; the order %s", err, becomes)
}

// send sends the request, and returns the answer. It says whether the agent has begun to carry out an order.
func (q request) send(conn net.Conn) (resp *http.Response, begun bool, err error) {
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n%s: %d\r\n\r\n", q.method, q.what, deadline, sinceBoot()+q.patience)
	from := bufio.NewReader(conn)
	for err == nil {
		if resp, err = http.ReadResponse(from, nil); err != nil || resp.StatusCode != http.StatusProcessing {
			break
		}
		begun = true
	}
	return resp, begun, err
}

// watch ends the context where the agent does not answer another question, either: one that is at work does.
func (p *Place) watch(ctx context.Context, end context.CancelCauseFunc) {
	const every = time.Second
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		err := p.ask(ctx, request{http.MethodGet, livePath, askTimeout - every, ""}, func(*http.Response) error { return nil })
		if errors.Is(err, context.DeadlineExceeded) {
			end(context.DeadlineExceeded)
		}
	}
}

// socket is where the agent listens.
func (p *Place) socket() string { return filepath.Join(p.StateDir, socketFile) }

// unanswered says why there is no answer where the agent is not late.
func (p *Place) unanswered(ctx context.Context, err error) error {
	path := p.socket()
	remedy := "start one"
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("ask the agent at %s: permission denied; run it with sudo", path)
	case ctx.Err() != nil:
		return fmt.Errorf("the agent at %s has not answered yet: %w", path, context.Cause(ctx))
	case datapath.AgentRuns(p.BPFRoot):
		remedy = "one runs, wait until it listens there"
	}
	return fmt.Errorf("no agent answers at %s: %w: %s, or name its directory with --state-dir", path, err, remedy)
}

// silence names the agent at the other end, and the state of its process.
func silence(conn net.Conn, waited time.Duration) Silence {
	text := "at " + conn.RemoteAddr().String()
	pid := peerOf(conn)
	if pid > 0 { // else it is in another PID namespace
		text = fmt.Sprintf("pid %d", pid)
	}
	text += fmt.Sprintf(" has not answered for %.0f s", waited.Seconds())
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if _, state, ok := strings.Cut(string(status), "\nState:\t"); ok { // such as "T (stopped)"
		state, _, _ = strings.Cut(state, ")")
		text += fmt.Sprintf(" (process state %s)", strings.Replace(state, " (", ", ", 1))
	}
	return Silence(text)
}

// peerOf returns the process that listens at the other end, 0 where that is not known.
func peerOf(conn net.Conn) (pid int) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // fails where it is closed
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// request is a line of JSON to a client process. No load means: end the present
// one.
type request struct {
	Load *Spec `json:",omitempty"`
}

// reply is a line of JSON from a client process. A load is over with the first
// reply that has a result or an error.
type reply struct {
	Counting *time.Time  `json:",omitempty"` // when counting begins
	Run      *result.Run `json:",omitempty"`
	Error    string      `json:",omitempty"`
}

// Serve is what a client process does: it reads loads from r, runs them one by
// one and writes results to w, until r ends.
func Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	requests, failed := make(chan request), make(chan error, 1)
	go func() {
		defer close(requests)
		defer cancel() // the parent is gone, or has ended us
		in := json.NewDecoder(r)
		for {
			var req request
			if err := in.Decode(&req); err != nil {
				if !errors.Is(err, io.EOF) {
					failed <- fmt.Errorf("read load: %s", err)
				}
				return
			}
			select {
			case requests <- req:
			case <-ctx.Done():
				return
			}
		}
	}()
	out := json.NewEncoder(w)
	for req := range requests {
		if req.Load != nil {
			if err := serveLoad(ctx, *req.Load, requests, out); err != nil {
				break
			}
		}
	}
	cancel()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// serveLoad runs a load, and ends it at the next request.
func serveLoad(ctx context.Context, spec Spec, requests <-chan request, out *json.Encoder) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	counting := make(chan time.Time, 2) // of the load, and of its ceiling
	over := make(chan reply, 1)
	go func() {
		run, err := Run(ctx, spec, func(at time.Time) { counting <- at })
		if err != nil {
			over <- reply{Error: err.Error()}
			return
		}
		over <- reply{Run: &run}
	}()
	for {
		select {
		case at := <-counting:
			if err := out.Encode(reply{Counting: &at}); err != nil {
				return err
			}
		case <-requests:
			requests = nil // it may be closed
			cancel()
		case last := <-over:
			return out.Encode(last)
		}
	}
}

// stopLimit is how much longer than a timeout a client process may take to end
// a load, before it is killed.
const stopLimit = 3 * time.Second

// Client is a process that runs loads in a network namespace, and perhaps in a
// cgroup of its own: the kernel decides by process which cgroup's programs see a
// connect().
type Client struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *json.Encoder
	replies chan reply // closed when the process is gone
	cause   error      // why it is gone, to be read after replies is closed
}

// StartClient starts cmd, whose main part must be Serve on its standard input
// and output, in a namespace and, unless it is nil, a cgroup. The name is for
// error messages.
func StartClient(ns *traffic.Namespace, cgroup *traffic.Cgroup, name string, cmd *exec.Cmd) (*Client, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %s", name, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %s", name, err)
	}
	if cgroup != nil {
		cgroup.Adopt(cmd)
	}
	if err := ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %s", name, err)
	}
	c := &Client{name: name, cmd: cmd, in: in, out: json.NewEncoder(in), replies: make(chan reply)}
	go c.read(out)
	return c, nil
}

func (c *Client) read(out io.Reader) {
	defer close(c.replies)
	decoder := json.NewDecoder(out)
	for {
		var r reply
		if err := decoder.Decode(&r); err != nil {
			break
		}
		c.replies <- r
	}
	c.cause = c.cmd.Wait()
}

// PID returns the ID of the process.
func (c *Client) PID() int { return c.cmd.Process.Pid }

// Run runs a load: a Runner. One load runs at a time.
func (c *Client) Run(ctx context.Context, spec Spec, started func(counting time.Time)) (result.Run, error) {
	if err := c.out.Encode(request{Load: &spec}); err != nil {
		return result.Run{}, fmt.Errorf("give load to %s: %s", c.name, err)
	}
	cancelled := ctx.Done()
	var limit <-chan time.Time
	for {
		select {
		case <-cancelled:
			cancelled = nil
			limit = time.After(stopLimit + spec.Timeout)
			_ = c.out.Encode(request{}) // if this fails, the limit comes next
		case <-limit:
			return result.Run{}, errors.Join(fmt.Errorf("%s does not end its load", c.name), c.cmd.Process.Kill())
		case r, alive := <-c.replies:
			switch {
			case !alive:
				return result.Run{}, fmt.Errorf("%s has died: %v", c.name, c.cause)
			case r.Error != "":
				return result.Run{}, errors.New(r.Error)
			case r.Run != nil:
				return *r.Run, nil
			case r.Counting != nil && started != nil:
				started(*r.Counting)
			}
		}
	}
}

// Close ends the process: politely at first, then not.
func (c *Client) Close() error {
	_ = c.in.Close() // the process may be gone already
	timer := time.AfterFunc(stopLimit, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	for range c.replies { // a reply to a load that nobody waits for
	}
	if c.cause != nil {
		return fmt.Errorf("end %s: %s", c.name, c.cause)
	}
	return nil
}

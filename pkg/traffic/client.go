package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// progressInterval is how often a client process says how far it is.
const progressInterval = 100 * time.Millisecond

// stopLimit is how long a client process may take to end a job that was
// cancelled, before it is killed.
const stopLimit = 3 * time.Second

// request is a line of JSON to a client process. No job means: end the
// present one.
type request struct {
	Job *Job `json:",omitempty"`
}

// reply is a line of JSON from a client process. A job is over with the first
// reply that has a result or an error.
type reply struct {
	Done   int64
	Result *Result `json:",omitempty"`
	Error  string  `json:",omitempty"`
}

// ServeJobs is what a client process does: it reads jobs from r, runs them one
// by one and writes progress and results to w, until r ends.
func ServeJobs(ctx context.Context, r io.Reader, w io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	jobs := &jobServer{out: json.NewEncoder(w)}
	defer jobs.running.Wait()
	defer jobs.stop()
	in := json.NewDecoder(r)
	for {
		var req request
		if err := in.Decode(&req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read job: %s", err)
		}
		jobs.stop()
		if req.Job != nil {
			jobs.start(ctx, *req.Job)
		}
	}
}

// jobServer runs at most one job, beside the reader of requests.
type jobServer struct {
	out     *json.Encoder
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// start waits for the previous job, so that replies never mix.
func (s *jobServer) start(ctx context.Context, job Job) {
	s.running.Wait()
	ctx, s.cancel = context.WithCancel(ctx)
	s.running.Go(func() { s.run(ctx, job) })
}

func (s *jobServer) stop() {
	if s.cancel != nil {
		s.cancel()
	}
}

// run writes to a parent that may be gone. That is no error worth reporting:
// the reader of requests notices it too.
func (s *jobServer) run(ctx context.Context, job Job) {
	var done atomic.Int64
	over := make(chan reply)
	go func() {
		result, err := Run(ctx, job, &done)
		if err != nil {
			over <- reply{Error: err.Error()}
			return
		}
		over <- reply{Done: done.Load(), Result: &result}
	}()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case last := <-over:
			_ = s.out.Encode(last)
			return
		case <-tick.C:
			_ = s.out.Encode(reply{Done: done.Load()})
		}
	}
}

// Client is a process that runs jobs, in a network namespace and perhaps in a
// cgroup of its own: the kernel decides by process which cgroup's programs see
// a connect().
type Client struct {
	name    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *json.Encoder
	replies chan reply // closed when the process is gone
	cause   error      // why the process is gone, to be read after replies is closed
}

// StartClient starts cmd, whose main part must be ServeJobs on its standard
// input and output, in a namespace and, unless it is nil, a cgroup. The name
// is for error messages.
func StartClient(ns *Namespace, cgroup *Cgroup, name string, cmd *exec.Cmd) (*Client, error) {
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

// read ends with the process.
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

// Run runs a job and returns what came of it. It calls progress, unless that
// is nil, several times a second with the number of exchanges finished. When
// ctx is cancelled the job ends early and Run returns what was finished by
// then. One job runs at a time.
func (c *Client) Run(ctx context.Context, job Job, progress func(done int)) (Result, error) {
	if err := c.out.Encode(request{Job: &job}); err != nil {
		return Result{}, fmt.Errorf("give job to %s: %s", c.name, err)
	}
	cancelled := ctx.Done()
	var limit <-chan time.Time
	for {
		select {
		case <-cancelled:
			cancelled = nil
			limit = time.After(stopLimit)
			_ = c.out.Encode(request{}) // if this fails, the limit comes next
		case <-limit:
			return Result{}, errors.Join(fmt.Errorf("%s does not end its job", c.name), c.cmd.Process.Kill())
		case r, alive := <-c.replies:
			switch {
			case !alive:
				return Result{}, fmt.Errorf("%s has died: %v", c.name, c.cause)
			case r.Error != "":
				return Result{}, fmt.Errorf("%s: %s", c.name, r.Error)
			case r.Result != nil:
				return *r.Result, nil
			case progress != nil:
				progress(int(r.Done))
			}
		}
	}
}

// Close ends the process: politely at first, then not.
func (c *Client) Close() error {
	_ = c.in.Close() // the process may be gone already
	timer := time.AfterFunc(stopLimit, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	for range c.replies { // a reply to a job that nobody waits for
	}
	if c.cause != nil {
		return fmt.Errorf("end %s: %s", c.name, c.cause)
	}
	return nil
}

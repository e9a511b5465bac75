package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/load"
)

const (
	agentReadyLimit = 2 * time.Minute // loading takes a second, and on a busy machine half a minute
	agentStopLimit  = 5 * time.Second
	logTailLines    = 15
)

// agentProcess is the agent of the demo, a child in the node's namespace.
type agentProcess struct {
	cmd     *exec.Cmd
	log     string
	leaving chan struct{} // closed when it is told to end
	ended   chan struct{} // closed when it has ended
	err     error         // how it ended, to be read after that
}

// startAgentProcess starts the agent. Should it end without being told to,
// died is called with the reason and the tail of its log.
func startAgentProcess(ns *traffic.Namespace, cmd *exec.Cmd, log string, died func(error)) (*agentProcess, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	if err := ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("start agent: %s", err)
	}
	a := &agentProcess{cmd: cmd, log: log, leaving: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		a.err = cmd.Wait()
		close(a.ended)
		select {
		case <-a.leaving:
		default:
			died(fmt.Errorf("the agent has died (%s); the end of its log:\n%s", cmd.ProcessState, a.tail()))
		}
	}()
	return a, nil
}

// stop tells the agent to end and waits until it has. A second call does
// nothing.
func (a *agentProcess) stop() error {
	select {
	case <-a.leaving:
		return nil
	case <-a.ended:
		return nil // already reported
	default:
	}
	close(a.leaving)
	if err := a.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return fmt.Errorf("stop agent: %s", err)
	}
	select {
	case <-a.ended:
	case <-time.After(agentStopLimit):
		return errors.Join(fmt.Errorf("stop agent: it still runs after %s", agentStopLimit), a.cmd.Process.Kill())
	}
	if a.err != nil {
		return fmt.Errorf("stop agent: %s; the end of its log:\n%s", a.err, a.tail())
	}
	return nil
}

// tail returns the last lines of the log, indented.
func (a *agentProcess) tail() string {
	text, err := os.ReadFile(a.log)
	if err != nil {
		return "    " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-logTailLines):]
	return "    " + strings.Join(lines, "\n    ")
}

func (d *demo) startAgent(ctx context.Context) error {
	return d.step("agent", func(progress func(string)) (string, error) {
		s := &d.stage
		cmd := exec.Command(d.headgate, "agent", "--manifests", s.manifests(), "--node-name", nodeName,
			"--cgroup", s.cgroup.Path, "--bpf-root", s.bpfRoot(), "--state-dir", s.stateDir())
		agent, err := startAgentProcess(s.node(), cmd, filepath.Join(s.dir, "agent.log"), s.failed)
		if err != nil {
			return "", err
		}
		s.agent = agent
		s.onClose(agent.stop)
		return fmt.Sprintf("Service %s answers at %s and %s", serviceName, clusterIPs[0], clusterIPs[1]),
			d.awaitService(ctx, progress)
	})
}

// awaitService returns when every frontend that the demo uses has answered.
func (d *demo) awaitService(ctx context.Context, progress func(string)) error {
	limit, cancel := context.WithTimeout(ctx, agentReadyLimit)
	defer cancel()
	for {
		missing, err := d.unanswered(limit)
		switch {
		case err != nil:
			return err
		case limit.Err() == nil && missing == "":
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case limit.Err() != nil:
			return fmt.Errorf("the Service does not answer after %s (%s); the end of the agent's log:\n%s",
				agentReadyLimit, missing, d.stage.agent.tail())
		}
		progress("waiting: " + missing)
		wait(limit, 20*time.Millisecond)
	}
}

// unanswered tries each frontend once and says what does not work, "" if all
// does.
func (d *demo) unanswered(ctx context.Context) (string, error) {
	for _, spec := range []load.Spec{
		{Kind: load.CRR, Targets: targets(clusterIPs, tcpPort)},
		{Kind: load.UDP, Targets: targets(clusterIPs, udpPort)},
	} {
		// One operation for each target.
		spec.Connections, spec.Senders = len(spec.Targets), 1
		spec.Rate, spec.Duration, spec.Timeout = 100, time.Duration(len(spec.Targets))*10*time.Millisecond, 100*time.Millisecond
		run, err := d.stage.inside.Run(ctx, inNamespaces(spec), nil)
		if err != nil || run.Failed > 0 {
			return targetList(spec.Targets) + ": " + run.ErrorText(), err
		}
	}
	return "", nil
}

// stopAgent ends the agent and checks that cleanup leaves nothing: no pins,
// and no program that still translates.
func (d *demo) stopAgent(ctx context.Context) error {
	return d.step("end", func(func(string)) (string, error) {
		s := &d.stage
		if err := s.agent.stop(); err != nil {
			return "", err
		}
		var output bytes.Buffer
		cmd := exec.CommandContext(ctx, d.headgate, "cleanup", "--bpf-root", s.bpfRoot())
		cmd.Stdout, cmd.Stderr = &output, &output
		err := s.node().Start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		d.expect(err == nil, "headgate cleanup succeeds, not %v: %s", err, strings.TrimSpace(output.String()))
		pins, err := pinsBelow(s.bpfRoot())
		if err != nil {
			return "", err
		}
		d.expect(len(pins) == 0, "no pin is left after cleanup, not %s", strings.Join(pins, ", "))
		missing, err := d.unanswered(ctx)
		d.expect(err != nil || missing != "", "the Service no longer answers after cleanup")
		return "agent stopped, headgate cleanup left nothing", err
	})
}

// pinsBelow returns what is pinned in a directory of a BPF file system, which
// may be gone.
func pinsBelow(dir string) ([]string, error) {
	var pins []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			pins = append(pins, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return pins, err
}

// wait returns after d, or earlier when ctx is done.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

const (
	// changeBound is how late a saved change may show in traffic. A few
	// milliseconds are normal: this is for a machine that does much else, where
	// a handshake that began before may end a second later.
	changeBound = 3 * time.Second
	changeLimit = 5 * time.Second // how long to wait for it
)

// steadyTraffic is connections at a constant rate, behind the changes.
type steadyTraffic struct {
	stop context.CancelFunc
	run  chan result.Run
	err  chan error
}

// changeEndpoints takes an endpoint out of the manifests while traffic flows,
// and puts it back.
func (d *demo) changeEndpoints(ctx context.Context) error {
	moved := backends[1]
	server := d.stage.servers[moved.name]
	steady := d.startSteady(ctx)
	defer steady.stop()
	undo, err := d.takeAway(ctx, moved, server)
	if err != nil {
		return err
	}
	if err := d.putBack(ctx, moved, server, undo); err != nil {
		return err
	}
	return d.step("connections meanwhile", func(func(string)) (string, error) {
		wait(ctx, d.size.calm)
		steady.stop()
		select {
		case err := <-steady.err:
			return "", err
		case run := <-steady.run:
			d.expectNoFailures(run)
			d.expect(run.Completed > 0, "connections while endpoints change")
			return fmt.Sprintf("%s answered, %s failed%s", thousands(run.Completed), thousands(run.Failed), lateness(lateOf(run))), nil
		}
	})
}

func (d *demo) startSteady(ctx context.Context) *steadyTraffic {
	ctx, cancel := context.WithCancel(ctx)
	steady := &steadyTraffic{stop: cancel, run: make(chan result.Run, 1), err: make(chan error, 1)}
	go func() {
		run, err := d.stage.inside.Run(ctx, inNamespaces(load.Spec{
			Kind: load.CRR, Targets: targets(clusterIPs, tcpPort), Rate: float64(d.size.rate), Duration: time.Minute, Interval: time.Minute, CheckPeer: true,
		}), nil)
		if err != nil {
			steady.err <- err
			return
		}
		steady.run <- run
	}()
	return steady
}

// takeAway removes the endpoint and returns what undoes that.
func (d *demo) takeAway(ctx context.Context, b backend, server *serve.Server) (undo func() error, err error) {
	title := fmt.Sprintf("%s taken out of the YAML at %d connections/s", b.name, d.size.rate)
	err = d.step(title, func(progress func(string)) (string, error) {
		progress("waiting for traffic")
		wait(ctx, d.size.calm)
		if err := awaitMore(ctx, server); err != nil {
			return "", err
		}
		saved := time.Now()
		undo, err = d.stage.removeEndpoint(b)
		if err != nil {
			return "", err
		}
		progress("saved, waiting for silence")
		last, err := awaitSilence(ctx, server, saved, d.size.calm)
		if err != nil {
			d.expect(false, "%s gets no new connection: %s", b.name, err)
			return "it still gets connections", nil
		}
		d.expect(last < changeBound, "%s gets no new connection within %s, not %s", b.name, changeBound, last)
		if last == 0 {
			return "not one to it since the save", nil
		}
		return fmt.Sprintf("last one to it after %s", millis(last)), nil
	})
	return undo, err
}

func (d *demo) putBack(ctx context.Context, b backend, server *serve.Server, undo func() error) error {
	return d.step(b.name+" put back", func(func(string)) (string, error) {
		saved := time.Now()
		if err := undo(); err != nil {
			return "", err
		}
		if err := awaitMore(ctx, server); err != nil {
			d.expect(false, "%s gets connections again: %s", b.name, err)
			return "it gets no connections", nil
		}
		took := time.Since(saved)
		d.expect(took < changeBound, "%s gets connections again within %s, not %s", b.name, changeBound, took)
		return fmt.Sprintf("first one to it after %s", millis(took)), nil
	})
}

// awaitMore returns when the server has accepted a connection more.
func awaitMore(ctx context.Context, server *serve.Server) error {
	start, _ := seen(server)
	limit := time.Now().Add(changeLimit)
	for ctx.Err() == nil {
		if now, _ := seen(server); now > start {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("none in %s", changeLimit)
		}
		wait(ctx, time.Millisecond/2)
	}
	return context.Cause(ctx)
}

// awaitSilence returns when the server has seen no connection for quiet, and how
// long after saved the last one came: 0 if before.
func awaitSilence(ctx context.Context, server *serve.Server, saved time.Time, quiet time.Duration) (time.Duration, error) {
	limit := saved.Add(changeLimit)
	for ctx.Err() == nil {
		_, last := seen(server)
		late := max(last.Sub(saved), 0)
		if time.Since(saved)-late > quiet {
			return late, nil
		}
		if time.Now().After(limit) {
			return 0, fmt.Errorf("still some after %s", changeLimit)
		}
		wait(ctx, 5*time.Millisecond)
	}
	return 0, context.Cause(ctx)
}

// seen is how many connections a server has accepted, and when it did last.
func seen(server *serve.Server) (connections uint64, last time.Time) {
	for _, stats := range server.Stats() { // of its only name
		connections, last = stats.Connections, stats.Last
	}
	return connections, last
}

// removeEndpoint edits the manifests as a person would, file by file, each
// saved by renaming. It returns what puts the old files back.
func (s *stage) removeEndpoint(b backend) (undo func() error, err error) {
	paths, err := filepath.Glob(filepath.Join(s.manifests(), "*.yaml"))
	if err != nil {
		return nil, err
	}
	var undos []func() error
	for _, path := range paths {
		old, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		edited, removed := withoutEndpoint(string(old), b.addrs)
		if removed == 0 {
			continue
		}
		if err := s.save(path, []byte(edited)); err != nil {
			return nil, err
		}
		undos = append(undos, func() error { return s.save(path, old) })
	}
	if len(undos) == 0 {
		return nil, fmt.Errorf("no manifest has an endpoint %s", b.addrs[0])
	}
	return func() error { return errors.Join(runAll(undos)...) }, nil
}

// save replaces a file in one step, so that no reader sees half of it.
func (s *stage) save(path string, text []byte) error {
	fresh := filepath.Join(s.dir, filepath.Base(path))
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

func runAll(funcs []func() error) []error {
	errs := make([]error, len(funcs))
	for i, f := range funcs {
		errs[i] = f()
	}
	return errs
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

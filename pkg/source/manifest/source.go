// Package manifest reads Services, EndpointSlices and this node's Node from a
// directory of ordinary Kubernetes YAML or JSON, and follows its changes.
//
// What is wrong in a file is a Problem and touches nothing else: of a bad
// object the last good version stays in force, of a document that cannot be
// read whatever the file had before.
package manifest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/source/convert"
)

// Source is a directory of manifests. Run may be called once.
type Source struct {
	dir     string // as given: it stands in messages
	node    string
	dec     decoder
	state   *state
	queue   queue
	watch   watch
	lookAt  time.Time // when to look at every file
	removed time.Time // when a file was last found missing
	watcher func() (*fsnotify.Watcher, error)
}

// New returns the source of the manifests directly in dir: *.yaml, *.yml and
// *.json, neither hidden nor an editor's backup; dir and the files may be
// symbolic links. Of Nodes only the one named nodeName matters,
// unless probes are allowed.
func New(dir, nodeName string) *Source {
	s := &Source{
		dir:     dir,
		node:    nodeName,
		queue:   queue{timing: defaultTiming(), waits: map[string]*wait{}},
		watcher: fsnotify.NewWatcher,
	}
	return s.Convert(convert.Options{})
}

// Convert makes the source follow what the operator decides about Services, and
// returns it. It is to be called before Run.
func (s *Source) Convert(opts convert.Options) *Source {
	opts.Outside = true // in a cluster nobody says of such endpoints that they take outer headers off
	s.dec.kinds = newKinds(s.node, opts)
	s.state = newState(s.node, s.dec.kinds)
	return s
}

// Poll makes the source look for changes every two seconds instead of waiting
// for the kernel to tell, and returns it: for directories of which the kernel
// tells nothing, as on network file systems.
func (s *Source) Poll() *Source {
	s.watcher = nil
	return s
}

// Check returns an error if the directory cannot be read. Run begins with it.
func (s *Source) Check() error {
	if _, err := os.ReadDir(s.dir); err != nil {
		return fmt.Errorf("read manifests in %s: %s; create the directory or name another", s.dir, cause(err))
	}
	return nil
}

// Run calls the function with everything there is, be it nothing, and from
// then on with every change, until the context ends; it returns nil then. It
// calls from its own goroutine only, and what it passes is not to be changed. A
// directory that cannot be read at the start is an error, later it is a Problem
// until it is back.
func (s *Source) Run(ctx context.Context, update func(lb.Update)) error {
	if err := s.Check(); err != nil {
		return err
	}
	path, err := filepath.Abs(s.dir)
	if err != nil {
		return fmt.Errorf("find the directory %s: %w", s.dir, err)
	}
	s.watch = newWatch(path, s.watcher)
	defer s.watch.close()

	s.look(time.Now())
	for len(s.queue.waits) > 0 {
		if !sleep(ctx, time.Until(s.queue.wake)) {
			return nil
		}
		s.process(time.Now())
	}
	s.pass(update)
	s.follow(ctx, update)
	return nil
}

// follow waits for changes and passes them on.
func (s *Source) follow(ctx context.Context, update func(lb.Update)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(s.wake()))
		select {
		case <-ctx.Done():
			return
		case ev := <-s.watch.events:
			s.note(ev, time.Now())
		case err := <-s.watch.errors:
			if err != nil { // whatever it is, events may be lost
				s.lookAt = time.Now()
			}
		case <-timer.C:
		}
		now := time.Now()
		if now.Before(s.wake()) {
			continue
		}
		if !now.Before(s.lookAt) {
			s.look(now)
		}
		s.process(now)
		s.pass(update)
	}
}

// wake returns when there is something to do even if nothing happens.
func (s *Source) wake() time.Time {
	if w := s.queue.wake; !w.IsZero() && w.Before(s.lookAt) {
		return w
	}
	return s.lookAt
}

// pass passes on what is new.
func (s *Source) pass(update func(lb.Update)) {
	if u, ok := s.state.next(); ok {
		update(u)
	}
}

// sleep waits, and says whether the context is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

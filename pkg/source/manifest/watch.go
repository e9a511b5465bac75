package manifest

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/pkg/lb"
)

// watch follows a directory and, through its parent, its coming and going.
// Without one, changes are still found by looking.
type watch struct {
	path    string // of the directory, absolute
	watcher *fsnotify.Watcher
	events  chan fsnotify.Event // nil where there are none, and so is errors
	errors  chan error
	seen    os.FileInfo // the directory that is watched
	err     error       // why there are no events
}

// newWatch watches by what open returns; nil means not to.
func newWatch(path string, open func() (*fsnotify.Watcher, error)) watch {
	w := watch{path: path}
	if open == nil {
		return w
	}
	if w.watcher, w.err = open(); w.err == nil {
		w.events, w.errors = w.watcher.Events, w.watcher.Errors
	}
	return w
}

func (w *watch) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
}

// renew watches the directory that is now at the path, where that is another
// one than before.
func (w *watch) renew() {
	if w.watcher == nil {
		return
	}
	info, err := os.Stat(w.path)
	if err != nil {
		return // which is reported by whoever reads it
	}
	watched := w.watcher.WatchList()
	if w.err == nil && slices.Contains(watched, w.path) && os.SameFile(info, w.seen) {
		return
	}
	// Not being watched any more is no error here.
	_ = w.watcher.Remove(w.path)
	w.err = w.watcher.Add(w.path)
	w.seen = info
	if parent := filepath.Dir(w.path); !slices.Contains(watched, parent) {
		// Where the parent cannot be watched, looking finds out as well.
		_ = w.watcher.Add(parent)
	}
}

// share is the share of a processor that looking may take, as its divisor: where there are
// events they mostly tell of everything, and with very many files a look takes long.
func (w *watch) share() time.Duration {
	if w.watcher != nil && w.err == nil {
		return 5000
	}
	return 100
}

// problems says why changes are noticed late, if they are.
func (w *watch) problems(dir string) []lb.Problem {
	if w.err == nil {
		return nil
	}
	return []lb.Problem{{Scope: lb.ScopeNode, File: dir, Reason: "cannot be watched, so changes take seconds: " + w.err.Error(),
		Remedy: "raise fs.inotify.max_user_watches and max_user_instances"}}
}

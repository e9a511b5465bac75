package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/pkg/statefile"
)

// drainedFile is within the state directory. What people say stands nowhere else.
const drainedFile = "drained.json"

// ReadDrained returns what is drained, for agents with a state directory.
func ReadDrained(stateDir string) (lb.Drained, error) {
	path := filepath.Join(stateDir, drainedFile)
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return lb.Drained{}, nil
	}
	if err != nil {
		return lb.Drained{}, err
	}
	var words []string
	if err = json.Unmarshal(body, &words); err == nil {
		var d lb.Drained
		if d, err = lb.ParseDrained(words); err == nil {
			return d, nil
		}
	}
	return lb.Drained{}, fmt.Errorf("read %s: %w", path, err)
}

// writeDrained keeps what is drained, or removes the file where nothing is.
func writeDrained(stateDir string, d lb.Drained) error {
	path := filepath.Join(stateDir, drainedFile)
	if d.IsEmpty() {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	body, err := json.Marshal(d.Words())
	if err != nil {
		return err
	}
	return statefile.Replace(path, append(body, '\n'))
}

// keepDrained has a reconciler go on with what an earlier agent drained, and keep what this one
// drains. A file that cannot be read is a problem: changes of Services do not wait for it.
func (a *statusServer) keepDrained(r *reconciler.Reconciler) {
	dir := a.cfg.StateDir
	if dir == "" {
		return
	}
	d, err := ReadDrained(dir)
	if err != nil {
		a.problems.setDrained([]lb.Problem{{
			Scope: lb.ScopeNode, Object: "the node", Field: filepath.Join(dir, drainedFile), Reason: "cannot be read, so nothing is drained: " + err.Error(),
			Remedy: "remove it, start the agent anew, and drain again what is to be drained",
		}})
	}
	r.KeepDrained(d, func(d lb.Drained) error { return writeDrained(dir, d) })
}

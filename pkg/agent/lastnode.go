package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/statefile"
)

// withLastNode has files keep what they last said of this node where that is in none
// that can be read, also after a restart: else Services would forget their zone.
type withLastNode struct {
	source
	unknown  lb.Node // has a name alone
	file     string  // where the node is kept, "" for nowhere
	log      *zap.Logger
	recalled bool // the node in force is that of the file
}

// Run implements source.
func (w *withLastNode) Run(ctx context.Context, update func(lb.Update)) error {
	return w.source.Run(ctx, func(u lb.Update) {
		if w.file != "" {
			u.Node = w.node(u)
		}
		update(u)
	})
}

// node returns what is to be known of the node after an update, nil for what was known.
func (w *withLastNode) node(u lb.Update) *lb.Node {
	said := u.Node
	if w.recalled && said == nil && !u.Partial {
		said = &w.unknown
	}
	if said == nil {
		return nil
	}
	w.recalled = *said == w.unknown && u.Partial
	if w.recalled {
		return w.recall()
	}
	if err := w.keep(*said); err != nil {
		w.log.Warn("keep what is known of the node for a restart", zap.Error(err))
	}
	return said
}

// keep writes what files say of the node, or removes it where they say nothing.
func (w *withLastNode) keep(n lb.Node) error {
	if n == w.unknown {
		if err := os.Remove(w.file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return statefile.Replace(w.file, append(body, '\n'))
}

// recall returns the node that was kept last, one without a zone where none was.
func (w *withLastNode) recall() *lb.Node {
	var n lb.Node
	body, err := os.ReadFile(w.file)
	if err == nil {
		err = json.Unmarshal(body, &n)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.log.Warn("read what was known of the node", zap.Error(err))
	}
	if err != nil || n.Name != w.unknown.Name {
		return &w.unknown
	}
	return &n
}

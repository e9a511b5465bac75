package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
	"github.com/headgate/headgate/pkg/source/manifest"
)

const nodeName = "node-a"

// settled is long enough for everything: files are believed, failures tried
// again however often, and what has retired is swept.
const settled = 10 * time.Minute

// node is what the agent makes of its parts, as far as a scenario needs them.
type node struct {
	work      string // directory of the script
	open      opener
	dp        *flaky
	addresses map[netip.Addr]plan.AddressKind

	dir    string // of the manifests, below work
	limits plan.Sizes
	sizes  plan.Sizes

	reconciler *reconciler.Reconciler // nil while no agent runs
	log        *observer.ObservedLogs
	cancel     context.CancelFunc
	ended      chan struct{}
}

func newNode(name, work string, open opener) *node {
	return &node{
		work: work, open: open, dp: newFlaky(name),
		sizes:     plan.Sizes{Frontends: 64, Slots: 256, Backends: 64, Services: 64, Addresses: 64},
		addresses: map[netip.Addr]plan.AddressKind{netip.MustParseAddr("192.0.2.1"): plan.NodeAddress},
	}
}

// start runs an agent, which goes on from what the maps hold.
func (n *node) start() error {
	inner, err := n.open(n.sizes)
	if err != nil {
		return err
	}
	n.dp.Datapath = inner
	n.dp.crashAfter(-1)
	core, log := observer.New(zapcore.InfoLevel)
	if n.reconciler, err = reconciler.New(zap.New(core), n.dp, n.limits); err != nil {
		return err
	}
	n.log = log
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.ended = cancel, make(chan struct{})
	go func() {
		defer close(n.ended)
		n.reconciler.Run(ctx)
	}()
	n.reconciler.SetNodeAddresses(n.addresses)
	source := manifest.New(filepath.Join(n.work, n.dir), nodeName).Poll()
	go func() {
		if err := source.Run(ctx, n.reconciler.Update); err != nil {
			zap.New(core).Error("source", zap.Error(err))
		}
	}()
	return nil
}

// stop ends the agent. What it has done stays.
func (n *node) stop() {
	if n.reconciler == nil {
		return
	}
	n.cancel()
	<-n.ended
	synctest.Wait()
	n.reconciler = nil
	if c, ok := n.dp.Datapath.(interface{ Close() }); ok {
		c.Close()
	}
}

// sync lets time pass until nothing is left to do. It is an error if that left
// the node other than it should be.
func (n *node) sync() error {
	time.Sleep(settled)
	synctest.Wait()
	crashed, unsafe := n.dp.state()
	select {
	case <-n.reconciler.Ready():
	default:
		if !crashed {
			return errors.New("the reconciler never got ready")
		}
	}
	for _, entry := range n.log.FilterLevelExact(zapcore.ErrorLevel).All() {
		if text := fmt.Sprint(entry.ContextMap()["error"]); !strings.Contains(text, errInjected.Error()) {
			return fmt.Errorf("%s: %s", entry.Message, text)
		}
	}
	return unsafe
}

// problems returns the problems that are reported and not solved, sorted.
func (n *node) problems() []string {
	open := map[string]bool{}
	for _, entry := range n.log.All() {
		text := strings.ReplaceAll(fmt.Sprint(entry.ContextMap()["problem"]), n.work+"/", "")
		switch entry.Message {
		case "problem":
			open[text] = true
		case "problem solved":
			delete(open, text)
		}
	}
	return slices.Sorted(maps.Keys(open))
}

// dump returns what the maps hold, one line for each entry.
func (n *node) dump() (string, error) {
	if n.reconciler == nil {
		dp, err := n.open(n.sizes)
		if err != nil {
			return "", err
		}
		n.dp.Datapath = dp
		defer func() {
			if c, ok := dp.(interface{ Close() }); ok {
				c.Close()
			}
		}()
	}
	content, err := n.dp.Content()
	return content.String(), err
}

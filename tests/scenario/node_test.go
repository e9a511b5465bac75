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
	"github.com/headgate/headgate/pkg/source/convert"
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

	dir     string // of the manifests, below work
	limits  plan.Sizes
	sizes   plan.Sizes
	convert convert.Options

	reconciler *reconciler.Reconciler // nil while no agent runs
	inbox      *reconciler.Inbox
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
	n.inbox = reconciler.NewInbox(nil)
	if n.reconciler, err = reconciler.New(zap.New(core), n.inbox, n.dp, n.limits); err != nil {
		return err
	}
	n.log = log
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.ended = cancel, make(chan struct{})
	go func() {
		defer close(n.ended)
		if err := n.reconciler.Run(ctx); err != nil {
			zap.New(core).Error("reconcile", zap.Error(err))
		}
	}()
	n.inbox.SetNodeAddresses(n.addresses)
	source := manifest.New(filepath.Join(n.work, n.dir), nodeName).Convert(n.convert).Poll()
	go func() {
		if err := source.Run(ctx, n.inbox.Update); err != nil {
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

// restart has another agent go on from what the maps hold. It is an error if that
// writes anything.
func (n *node) restart() error {
	before, err := n.dump()
	if err != nil {
		return err
	}
	n.dp.done()
	n.stop()
	if err := n.start(); err != nil {
		return err
	}
	if err := n.sync(); err != nil {
		return err
	}
	if ops := n.dp.done(); len(ops) > 0 {
		return fmt.Errorf("the agent that starts writes what is there:\n%s", strings.Join(ops, "\n"))
	}
	after, err := n.dump()
	if err == nil && after != before {
		err = fmt.Errorf("the maps hold:\n%s\nbefore the restart:\n%s", after, before)
	}
	return err
}

// sync lets time pass until nothing is left to do. It is an error if that left
// the node other than it should be.
func (n *node) sync() error {
	n.dp.failAgain()
	for before := -1; !n.isReady() && n.dp.progress() > before || before < 0; {
		before = n.dp.progress() // much takes many tries
		time.Sleep(settled)
		synctest.Wait()
	}
	crashed, unsafe := n.dp.state()
	if !n.isReady() && !crashed {
		return errors.New("the reconciler never got ready")
	}
	for _, entry := range n.log.FilterLevelExact(zapcore.ErrorLevel).All() {
		if text := fmt.Sprint(entry.ContextMap()["error"]); !strings.Contains(text, errInjected.Error()) {
			return fmt.Errorf("%s: %s", entry.Message, text)
		}
	}
	return unsafe
}

// isReady says whether all that was there at first is in force.
func (n *node) isReady() bool {
	select {
	case <-n.reconciler.Ready():
		return true
	default:
		return false
	}
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

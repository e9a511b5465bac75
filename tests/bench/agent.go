package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/reconciler"
)

// A watched datapath notes how long its calls take and when an Apply with
// operations is done: what it wrote is in the kernel then.
type watched struct {
	*datapath.Datapath
	mu      sync.Mutex
	spent   map[string]time.Duration
	applied chan applied
}

// applied is an Apply that is done.
type applied struct {
	at        time.Time
	ops       int
	frontends int // that were put
}

func (w *watched) note(name string, from time.Time) {
	w.mu.Lock()
	w.spent[name] += time.Since(from)
	w.mu.Unlock()
}

func (w *watched) Content() (plan.Content, error) {
	defer w.note("read the maps", time.Now())
	return w.Datapath.Content()
}

func (w *watched) Reserve(s plan.Sizes) error {
	defer w.note("make room in the maps", time.Now())
	return w.Datapath.Reserve(s)
}

func (w *watched) Attach() error {
	defer w.note("load, attach and pin", time.Now())
	return w.Datapath.Attach()
}

func (w *watched) Apply(ops []plan.Op) (int, error) {
	from := time.Now()
	n, err := w.Datapath.Apply(ops)
	at := time.Now()
	w.note("write the maps", from)
	if n > 0 {
		w.applied <- applied{at, n, putFrontends(ops[:n])}
	}
	return n, err
}

// putFrontends counts the frontends that operations put.
func putFrontends(ops []plan.Op) (n int) {
	for _, op := range ops {
		if _, ok := op.(plan.PutFrontend); ok {
			n++
		}
	}
	return n
}

// node is an agent without its process: the datapath and the reconciler.
type node struct {
	group *group
	dp    *watched
	r     *reconciler.Reconciler
	inbox *reconciler.Inbox
	stop  func()
	took  time.Duration            // from Open until everything was in the kernel
	parts map[string]time.Duration // of that
}

// startNode starts an agent on what is pinned, or on nothing, and hands it an
// update. It returns when all of it is in the kernel and in force.
func (b *bench) startNode(g *group, u lb.Update) (*node, error) {
	n := &node{group: g, inbox: reconciler.NewInbox(nil)}
	from := time.Now()
	d, err := datapath.Open(g.config(nil))
	if err != nil {
		return nil, err
	}
	opened := time.Since(from)
	n.dp = &watched{Datapath: d, spent: map[string]time.Duration{"open": opened}, applied: make(chan applied, 1024)}
	if n.r, err = reconciler.New(zap.NewNop(), n.inbox, n.dp, plan.Sizes{}); err != nil {
		d.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	var refused error
	go func() { refused = n.r.Run(ctx); close(done) }()
	n.stop = func() { cancel(); <-done; d.Close() }
	n.inbox.SetNodeAddresses(map[netip.Addr]plan.AddressKind{sourceAddr4: plan.NodeAddress, sourceAddr6: plan.NodeAddress})
	n.inbox.Update(u)
	select {
	case <-n.r.Ready():
	case <-done:
		d.Close()
		return nil, cmp.Or(refused, b.ctx.Err())
	case <-b.ctx.Done():
		n.stop()
		return nil, b.ctx.Err()
	}
	n.took = time.Since(from)
	n.dp.mu.Lock()
	n.parts = n.dp.spent
	n.dp.spent = map[string]time.Duration{}
	n.dp.mu.Unlock()
	return n, nil
}

// emptyNode makes a group in which nothing is pinned yet.
func (b *bench) emptyNode(name string) (*group, error) {
	g, err := b.newGroup(name)
	if err != nil {
		return nil, err
	}
	g.root = filepath.Join(b.bpffs, name)
	return g, nil
}

// forget empties what is noted of past writes.
func (w *watched) forget() {
	for {
		select {
		case <-w.applied:
		default:
			return
		}
	}
}

// wait returns when the next write was done, and how many operations it was.
func (b *bench) wait(w *watched) (applied, error) {
	select {
	case a := <-w.applied:
		return a, nil
	case <-b.ctx.Done():
		return applied{}, b.ctx.Err()
	case <-time.After(30 * time.Second):
		return applied{}, fmt.Errorf("the change did not come to the kernel")
	}
}

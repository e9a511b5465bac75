package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/healthcheck"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/statefile"
)

// lastHealth keeps what load balancers are answered of this node, also for the next agent:
// what this one programs serves until that one has heard of everything and loaded programs.
type lastHealth struct {
	file  string     // "" for nowhere
	about keptHealth // whose health it is
	ended time.Time  // when the agent before ran last, the zero time for never
	log   *zap.Logger

	mu     sync.Mutex
	node   *healthcheck.Node // nil while unknown
	checks map[lb.ServiceName]lb.HealthCheck
	// unheard are the Services of checks of which this agent has heard nothing yet.
	unheard map[lb.ServiceName]bool
	cannot  bool // write the file; it was said
}

// keptHealth is what the file holds.
type keptHealth struct {
	BPFRoot  string            `json:"bpfRoot"`
	NodeName string            `json:"nodeName"`
	Node     *healthcheck.Node `json:"node,omitempty"`
	Checks   []keptCheck       `json:"checks"`
}

type keptCheck struct {
	Service lb.ServiceName `json:"service"`
	lb.HealthCheck
}

// HealthPorts returns the health-check NodePorts that the agent with a state directory and a
// root of BPF pins is to serve, as it has kept them; none where it has kept nothing. Whoever asks may see
// the root below another directory, as in a container.
func HealthPorts(dir, bpfRoot string) (ports []uint16, err error) {
	body, err := os.ReadFile(filepath.Join(dir, healthFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var kept keptHealth
	if err := json.Unmarshal(body, &kept); err != nil {
		return nil, fmt.Errorf("read health-check NodePorts of the agent, %s: %w", filepath.Join(dir, healthFile), err)
	}
	if !strings.HasSuffix(bpfRoot, kept.BPFRoot) {
		return nil, nil // of an agent that the directory served before
	}
	for _, c := range kept.Checks {
		ports = append(ports, c.Port)
	}
	return ports, nil
}

// newLastHealth reads what the agent before has left, before a source says anything.
func newLastHealth(cfg Config, log *zap.Logger) *lastHealth {
	l := &lastHealth{
		file: cfg.stateFile(healthFile), log: log, checks: map[lb.ServiceName]lb.HealthCheck{}, unheard: map[lb.ServiceName]bool{},
		about: keptHealth{BPFRoot: cfg.Datapath.Root, NodeName: cfg.NodeName},
	}
	if l.file == "" {
		return l
	}
	var err error
	if l.ended, err = datapath.LastAlive(cfg.Datapath.Root); err != nil {
		log.Warn("read when an agent ran last", zap.Error(err))
	}
	var kept keptHealth
	body, err := os.ReadFile(l.file)
	if err == nil {
		err = json.Unmarshal(body, &kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("read what load balancers were answered", zap.Error(err))
	}
	if err != nil || kept.BPFRoot != l.about.BPFRoot || kept.NodeName != l.about.NodeName {
		l.ended = time.Time{} // it was about something else
		return l
	}
	l.node = kept.Node
	for _, c := range kept.Checks {
		l.checks[c.Service], l.unheard[c.Service] = c.HealthCheck, true
	}
	return l
}

// setNode passes on what a source says of the node.
func (l *lastHealth) setNode(n healthcheck.Node, tell func(*healthcheck.Node)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tell(&n)
	if l.node == nil || l.node.Deleting != n.Deleting {
		l.node = &n
		l.keep()
	}
}

// recall tells what was last known of the node, from the agent before or from a source
// meanwhile, and returns the health checks that were answered last.
func (l *lastHealth) recall(tell func(*healthcheck.Node)) map[lb.ServiceName]lb.HealthCheck {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.node != nil {
		tell(l.node)
	}
	return maps.Clone(l.checks)
}

// change keeps what has changed, and returns that: with what has gone of those that the agent
// before answered, which are all but those of Services that are in force as it has left them.
func (l *lastHealth) change(checks map[lb.ServiceName]lb.HealthCheck, adopted map[lb.ServiceName]bool) map[lb.ServiceName]lb.HealthCheck {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := map[lb.ServiceName]lb.HealthCheck{}
	for name := range l.unheard {
		if !adopted[name] {
			changed[name] = lb.HealthCheck{}
			delete(l.unheard, name)
		}
	}
	maps.Copy(changed, checks)
	if len(changed) == 0 {
		return nil
	}
	maps.Copy(l.checks, changed)
	maps.DeleteFunc(l.checks, func(_ lb.ServiceName, c lb.HealthCheck) bool { return c.Port == 0 })
	l.keep()
	return changed
}

// keep writes the file, and says once if it cannot.
func (l *lastHealth) keep() {
	if l.file == "" {
		return
	}
	kept := l.about
	kept.Node, kept.Checks = l.node, []keptCheck{}
	for _, name := range slices.SortedFunc(maps.Keys(l.checks), lb.ServiceName.Compare) {
		kept.Checks = append(kept.Checks, keptCheck{name, l.checks[name]})
	}
	body, err := json.Marshal(kept)
	if err == nil {
		err = statefile.Replace(l.file, append(body, '\n'))
	}
	if err != nil && !l.cannot {
		l.log.Warn("keep what load balancers are answered for a restart", zap.Error(err))
	}
	l.cannot = err != nil
}

const notYet = "what the sources say is not in force yet"

// begin says what is answered until everything is in force. If what the agent before has
// programmed serves, that is what it answered, for as long as a change may wait: those that
// came since it ended do.
func (a *statusServer) begin(serves bool) {
	if !serves || a.last.ended.IsZero() {
		a.proxy.SetAwaited(notYet, time.Time{})
		return
	}
	a.markAlive(a.last.ended) // maps that are made beside the pinned ones touch the directory, too
	a.proxy.SetAwaited(notYet, a.last.ended.Add(a.proxy.Timeout()))
	a.services.Change(a.last.recall(a.proxy.SetNode))
}

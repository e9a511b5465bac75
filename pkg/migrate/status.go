// Package migrate leads a node from kube-proxy to Headgate, and back, so that no connection
// is lost: it looks how far the node is, does the next thing that is its own to do, and says
// what others have to do. Nothing is kept but what the node itself shows, so that it may be
// ended at any moment and begun again.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/preflight"
)

// Config says which node and which agent.
type Config struct {
	Root    string                      // of BPF pins
	Ready   func(context.Context) error // an error unless the agent serves
	Healthz string                      // host:port where load balancers ask, "" for nowhere
	Metrics string                      // host:port, "" for nowhere
	// HealthPorts are the health-check NodePorts of this node, as the agent knows them.
	HealthPorts func() ([]uint16, error)
}

// Status is how far a node is.
type Status struct {
	// Agent is why no agent serves here, "" if one does.
	Agent string `json:"agent,omitempty"`
	// AgentRuns says that there is one, whether or not it serves.
	AgentRuns bool `json:"agentRuns"`
	// Loaded says that programs of Headgate are in the kernel, with or without an agent.
	Loaded    bool                `json:"loaded"`
	KubeProxy preflight.KubeProxy `json:"kubeProxy"`
	Rules     []preflight.Rules   `json:"rules"` // of kube-proxy, in force
	// LastNAT says that kube-proxy's table is the only one that translates addresses.
	LastNAT bool `json:"lastNAT"`
	// KeepsNAT says that the table of Headgate is there which keeps translation going.
	KeepsNAT bool `json:"keepsNAT"`
	// NATSince is since when, the zero time where that is not known.
	NATSince time.Time        `json:"natSince,omitzero"`
	Ports    []preflight.Port `json:"ports"` // those of health checks and metrics
	// Healthz is why no kube-proxy with rules of all families answers where load balancers
	// ask, "" if one does.
	Healthz string `json:"healthz,omitempty"`
	// Connections are those that the kernel translates because of kube-proxy's rules, by
	// protocol. They are not known where nothing is loaded.
	Connections map[string]int `json:"connections"`
	// Sockets are those of the node that have such a connection; a datagram socket is one
	// that nobody would move to another backend once the rules are stale.
	Sockets []datapath.Untranslated `json:"sockets"`

	families      map[string]bool // of the frontends in force that have backends
	familiesNamed bool            // by who answers at Healthz, of which Healthz is the judgement
}

// Clean says that Headgate serves, and that nothing of kube-proxy is left.
func (s Status) Clean() bool {
	return s.Agent == "" && !s.KubeProxy.Runs && len(s.Rules) == 0 && !s.KeepsNAT && s.told()
}

// told says that no datagram socket depends on kube-proxy.
func (s Status) told() bool { return s.countSockets(lb.UDP) == 0 }

func (s Status) countSockets(p lb.Protocol) (n int) {
	for _, one := range s.Sockets {
		if one.Protocol == p.String() {
			n++
		}
	}
	return n
}

// Look returns how far the node of the calling thread's network namespace is.
func Look(ctx context.Context, cfg Config) (Status, error) {
	return look(ctx, cfg, func(s *Status, r *datapath.Reader) error { return errors.Join(s.lookForFamilies(r), s.lookThrough(r)) })
}

// lookBack is like Look for the way back, on which it is of no interest what goes through
// kube-proxy's rules. To know that takes the cgroups of the node, which are not seen
// everywhere.
func lookBack(ctx context.Context, cfg Config) (Status, error) {
	return look(ctx, cfg, (*Status).lookForFamilies)
}

// look looks at a node, and at what is in force by means of into.
func look(ctx context.Context, cfg Config, into func(*Status, *datapath.Reader) error) (s Status, err error) {
	s = Status{KubeProxy: preflight.FindKubeProxy(ctx, reachable(cfg.Metrics)), AgentRuns: datapath.AgentRuns(cfg.Root), Connections: map[string]int{}}
	if err := cfg.Ready(ctx); err != nil {
		s.Agent = err.Error()
	}
	if s.Rules, s.LastNAT, err = preflight.FindRules(s.KubeProxy); err != nil {
		return s, fmt.Errorf("look for kube-proxy's rules: %w", err)
	}
	if s.KeepsNAT, s.NATSince, err = netdev.KeepsNAT(); err != nil {
		return s, err
	}
	if err := s.lookWhoListens(cfg); err != nil {
		return s, fmt.Errorf("look who listens: %w", err)
	}
	err = datapath.Look(func() (*datapath.Reader, error) { return datapath.Inspect(cfg.Root) }, func(r *datapath.Reader) error {
		s.Loaded = true
		return into(&s, r)
	})
	if errors.Is(err, datapath.ErrNotLoaded) {
		err = datapath.CheckElsewhere(cfg.Root)
	}
	if err != nil {
		return s, err
	}
	s.Healthz, s.familiesNamed = askHealthz(ctx, cfg.Healthz, s.families)
	if cfg.Healthz != "" && s.Ports[0].Is(preflight.HeadgateName) {
		s.Healthz = "the agent answers at " + cfg.Healthz
	}
	return s, nil
}

// lookWhoListens looks who has the ports that an agent has, or a kube-proxy.
func (s *Status) lookWhoListens(cfg Config) error {
	wanted := slices.DeleteFunc([]string{cfg.Healthz, cfg.Metrics}, func(address string) bool { return address == "" })
	ports, err := cfg.HealthPorts()
	if err != nil {
		return err
	}
	for _, port := range ports {
		wanted = append(wanted, fmt.Sprintf(":%d", port))
	}
	s.Ports, err = preflight.FindPorts(wanted...)
	return err
}

// lookThrough looks for what goes through kube-proxy's rules.
func (s *Status) lookThrough(r *datapath.Reader) (err error) {
	if s.Sockets, err = r.Untranslated(); err != nil {
		return err
	}
	content, err := r.Content()
	if err != nil {
		return err
	}
	tracked, err := netdev.TranslatedConnections()
	if err != nil {
		return err
	}
	s.Connections = countConnections(tracked, content)
	return nil
}

// lookForFamilies looks which families have Services with backends: kube-proxy writes chains
// for these.
func (s *Status) lookForFamilies(r *datapath.Reader) error {
	content, err := r.Content()
	if err != nil {
		return err
	}
	s.families = map[string]bool{}
	for at, f := range content.Frontends {
		if f.Members.Size > 0 {
			s.families[map[bool]string{true: "IPv4", false: "IPv6"}[at.Addr.Is4()]] = true
		}
	}
	return nil
}

func countConnections(tracked []netdev.Translated, content plan.Content) map[string]int {
	count := map[string]int{}
	for _, t := range tracked {
		to := lb.AddrPort{Addr: t.To.Addr(), Port: t.To.Port(), Protocol: lb.Protocol(t.Protocol)}
		if content.IsFrontend(to, true) {
			count[to.Protocol.String()]++
		}
	}
	return count
}

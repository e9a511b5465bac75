package contender

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
)

// The contenders that there always are.
const (
	Direct         = "direct"          // clients ask the servers themselves
	HeadgateSocket = "headgate-socket" // clients are processes of the node
	HeadgateTC     = "headgate-tc"     // clients are elsewhere, or past the sockets
	IPTables       = "iptables"        // rules of kube-proxy's shape
	NFTables       = "nftables"        // the same
	// kube-proxy itself, in each of its modes, if there is one.
	KubeProxyIPTables = "kube-proxy-iptables"
	KubeProxyNFTables = "kube-proxy-nftables"
)

// Names returns the contenders that there always are.
func Names() []string {
	return []string{Direct, HeadgateSocket, HeadgateTC, IPTables, NFTables, KubeProxyIPTables, KubeProxyNFTables}
}

// IsKubeProxy says that a contender needs the program.
func IsKubeProxy(name string) bool { return name == KubeProxyIPTables || name == KubeProxyNFTables }

// Hook is another load balancer. Its commands are for /bin/sh and find in their
// environment $NODE, the namespace of the node, $TOPOLOGY, the start of the names of
// all, $CGROUP, which the client is in, and $SERVICES, a file with a line for each
// Service: protocol, address:port and its endpoints, with spaces between.
type Hook struct {
	Setup    string `yaml:"setup"`
	Teardown string `yaml:"teardown"`
	Change   string `yaml:"change"`  // $SERVICES is another one
	Restart  string `yaml:"restart"` // ends the load balancer and starts it again
}

// Spec says what is brought up.
type Spec struct {
	Name      string
	Hook      *Hook // of a contender that is not among Names
	Topology  string
	RunName   string // see traffic.RunName; with more behind it that is the contender's own
	UDP       bool   // Services are of UDP, not of TCP
	IPv6      bool   // Services and servers have such addresses, not IPv4
	Services  int
	Endpoints int              // of each Service
	Drill     bool             // the first endpoint of the asked Service can be taken away
	CgroupTop string           // where a cgroup is made
	RunDir    string           // where a folder is made
	Headgate  string           // the program of contenders that are Headgate
	Worker    func() *exec.Cmd // runs the load, see load.Serve
	KubeProxy string           // the program, for contenders that are one
	Kernel    Kernel           // nil: what the kernel knows is not measured
	Ready     time.Duration    // how long it may take until all Services answer
}

// Contender is a topology with servers, a client, and a load balancer between them.
type Contender struct {
	Spec     Spec
	site     *load.Site
	services []service
	node     string // the machine
	dir      string
	cgroup   *traffic.Cgroup
	taken    *takenServers // of a drill
	changes  *changes
	process  *process   // the load balancer's own, nil without
	api      *apiServer // of kube-proxy
	bpfRoot  string     // of Headgate, "" without
	memory   result.Memory
	undo     []func() error
}

// Start brings a contender up, and returns when Services answer. On error nothing is
// left behind.
func Start(ctx context.Context, spec Spec) (*Contender, error) {
	p := &Contender{Spec: spec}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("bring up %s, Services %d: %w", spec.Name, spec.Services, err), p.Close())
	}
	return p, nil
}

// Validate returns what is wrong with a spec.
func (s Spec) Validate() error {
	if s.Hook == nil && !slices.Contains(Names(), s.Name) {
		return fmt.Errorf("contender %q: there are %s, and what hooks bring up", s.Name, strings.Join(Names(), ", "))
	}
	if s.Services < 1 || s.Endpoints < 1 || s.Services > maxServices || s.Endpoints > maxAsked || (s.Services+1)*s.Endpoints > maxEndpoints {
		return fmt.Errorf("%d Services of %d endpoints: there can be %d Services, %d endpoints of one and %d in all", s.Services, s.Endpoints, maxServices, maxAsked, maxEndpoints)
	}
	if s.Topology != "node" && s.Topology != "pair" {
		return fmt.Errorf("topology %q: contenders are compared in node and pair", s.Topology)
	}
	if s.Name == HeadgateSocket && s.Topology != "node" {
		return fmt.Errorf("topology %q: clients of %s are on the node, so the topology is node", s.Topology, s.Name)
	}
	if s.Name == HeadgateTC && s.Topology != "pair" {
		return fmt.Errorf("topology %q: clients of %s come from elsewhere, so the topology is pair", s.Topology, s.Name)
	}
	return nil
}

func (p *Contender) start(ctx context.Context) (err error) {
	if err := p.Spec.Validate(); err != nil {
		return err
	}
	p.dir = filepath.Join(p.Spec.RunDir, p.Spec.RunName)
	for _, dir := range []string{p.dir, filepath.Join(p.dir, "bpf"), filepath.Join(p.dir, "manifests")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	p.undo = append(p.undo, func() error { return traffic.RemoveRunDir(p.dir) })
	if p.cgroup, err = traffic.NewCgroup(p.Spec.CgroupTop, p.Spec.RunName); err != nil {
		return err
	}
	p.undo = append(p.undo, p.cgroup.Close)
	if err := p.startSite(); err != nil {
		return err
	}
	p.undo = append(p.undo, p.site.Close)
	return p.bringUp(ctx)
}

// Environment is what commands find.
func (p *Contender) Environment() []string {
	return append(os.Environ(), "TOPOLOGY="+p.Spec.RunName, "NODE="+p.site.Topology.Namespace(p.node).Name(),
		"CGROUP="+p.cgroup.Path, "SERVICES="+p.servicesFile())
}

// Close removes everything.
func (p *Contender) Close() error {
	var errs []error
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i]())
	}
	p.undo = nil
	return errors.Join(errs...)
}

package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/load"
	"github.com/headgate/headgate/pkg/traffic/result"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// The peers that there always are.
const (
	Direct         = "direct"          // clients ask the servers themselves
	HeadgateSocket = "headgate-socket" // clients are processes of the node
	HeadgateTC     = "headgate-tc"     // clients are elsewhere, or past the sockets
	IPTables       = "iptables"        // rules of kube-proxy's shape
	NFTables       = "nftables"        // the same
)

// Names returns the peers that there always are.
func Names() []string { return []string{Direct, HeadgateSocket, HeadgateTC, IPTables, NFTables} }

// Hook is another load balancer. Its commands are for /bin/sh and find in their
// environment $NODE, the namespace of the node, $PLACE, the start of the names of
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
	Hook      *Hook // of a peer that is not among Names
	Place     string
	RunName   string // see traffic.RunName; with more behind it that is the peer's own
	UDP       bool   // Services are of UDP, not of TCP
	Services  int
	Endpoints int           // of each Service
	Drill     bool          // the first endpoint of the asked Service can be taken away
	CgroupTop string        // where a cgroup is made
	RunDir    string        // where a folder is made
	Program   string        // headgate
	Ready     time.Duration // how long it may take until all Services answer
}

// Peer is a place with servers, a client, and a load balancer between them.
type Peer struct {
	Spec     Spec
	site     *load.Site
	services []service
	taken    *takenServers // of a drill
	changes  *changes
	agent    *process // Headgate's
	node     string   // the machine
	dir      string
	cgroup   *traffic.Cgroup
	undo     []func() error
}

// Start brings a peer up, and returns when Services answer. On error nothing is
// left behind.
func Start(ctx context.Context, spec Spec) (*Peer, error) {
	p := &Peer{Spec: spec}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("bring up %s, Services %d: %w", spec.Name, spec.Services, err), p.Close())
	}
	return p, nil
}

// Validate returns what is wrong with a spec.
func (s Spec) Validate() error {
	if s.Hook == nil && !slices.Contains(Names(), s.Name) {
		return fmt.Errorf("peer %q: there are %s, and what hooks bring up", s.Name, strings.Join(Names(), ", "))
	}
	if s.Services < 1 || s.Endpoints < 1 || s.Services > maxServices || (s.Services+1)*s.Endpoints > maxServices {
		return fmt.Errorf("%d Services of %d endpoints: there can be %d endpoints in all", s.Services, s.Endpoints, maxServices)
	}
	if s.Place != "node" && s.Place != "pair" {
		return fmt.Errorf("place %q: peers are compared in node and pair", s.Place)
	}
	if s.Name == HeadgateSocket && s.Place != "node" {
		return fmt.Errorf("place %q: clients of %s are on the node, so the place is node", s.Place, s.Name)
	}
	if s.Name == HeadgateTC && s.Place != "pair" {
		return fmt.Errorf("place %q: clients of %s come from elsewhere, so the place is pair", s.Place, s.Name)
	}
	return nil
}

func (p *Peer) start(ctx context.Context) (err error) {
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
	if err := p.site.Place.Namespace(p.site.Place.Spec.Client).Do(p.routeServices); err != nil {
		return fmt.Errorf("route Services to the node: %w", err)
	}
	if err := p.balance(ctx); err != nil {
		return err
	}
	return p.await(ctx)
}

// startSite makes the place, its servers and the client.
func (p *Peer) startSite() (err error) {
	p.site, err = load.NewSite(load.SiteSpec{
		Place: p.Spec.Place, RunName: p.Spec.RunName, Servers: p.Spec.Endpoints, Port: askedPort, Cgroup: p.cgroup,
		Worker: func() *exec.Cmd {
			cmd := exec.Command(p.Spec.Program, "bench", "worker")
			cmd.Stderr = os.Stderr
			return cmd
		},
	})
	if err != nil {
		return err
	}
	place := p.site.Place
	p.node, _ = place.NextToClient()
	protocol := map[bool]string{true: "udp", false: "tcp"}[p.Spec.UDP]
	p.services = newServices(place.Spec, protocol, p.Spec.Services, p.Spec.Endpoints)
	if p.Spec.Drill {
		if err := p.startTaken(); err != nil {
			return errors.Join(err, p.site.Close())
		}
	}
	p.changes = p.newChanges()
	for _, machine := range place.Spec.Servers {
		all := []serve.Endpoint{{Name: machine, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), wildcardPort)}}
		server, err := serve.Start(all, serve.Options{Within: place.Namespace(machine).Do})
		if err != nil {
			return errors.Join(fmt.Errorf("machine %s: %w", machine, err), p.site.Close())
		}
		p.undo = append(p.undo, server.Close)
	}
	return nil
}

// routeServices sends what is for Services to the node, on the client.
func (p *Peer) routeServices() error {
	device := ""
	for _, l := range p.site.Place.Spec.Links {
		if l.A == p.node && l.B == p.site.Place.Spec.Client {
			device = l.Device(p.node)
		}
	}
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find device %q: %w", device, err)
	}
	return netlink.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index, Gw: p.site.Place.Machine(p.node).Addrs[0].AsSlice(), Flags: int(netlink.FLAG_ONLINK),
		Dst: &net.IPNet{IP: serviceNet.Addr().AsSlice(), Mask: net.CIDRMask(serviceNet.Bits(), 32)},
	})
}

// await returns when the first, the asked and the last Service answer.
func (p *Peer) await(ctx context.Context) error {
	to := targets(p.services, true, p.Spec.Name == Direct)
	kind := load.UDP // its Services but the asked one have no servers that answer
	if !p.Spec.UDP {
		kind = load.CRR
	}
	if p.Spec.Name != Direct && !p.Spec.UDP {
		to = append(to, p.services[0].addr, p.services[len(p.services)-1].addr)
	}
	spec := load.Spec{Kind: kind, Targets: to, Timeout: 300 * time.Millisecond, Duration: 10 * time.Millisecond, Connections: 1, Outside: true}
	for limit := time.Now().Add(p.Spec.Ready); ; {
		_, err := p.site.Client.Run(ctx, spec, nil)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(limit) {
			return fmt.Errorf("no answer after %s: %w%s", p.Spec.Ready, err, p.agentLog())
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Run runs a load on the Services, on all of them in turn or on the one in the
// middle, with actions that find $NODE and the rest in their environment.
func (p *Peer) Run(ctx context.Context, spec load.Spec, one bool, actions []load.Action) (result.Run, error) {
	spec.Targets, spec.Outside = targets(p.services, one, p.Spec.Name == Direct), true
	run, err := load.RunWith(ctx, p.site.Client.Run, spec, actions)
	if err != nil {
		return run, fmt.Errorf("%s with %d Services: %w", p.Spec.Name, p.Spec.Services, err)
	}
	const few = 4
	if len(run.Load.Targets) > few { // in every run again, and in order of no use
		run.Load.Targets = []string{fmt.Sprintf("%d addresses", len(run.Load.Targets))}
	}
	return run, nil
}

// Environment is what commands find.
func (p *Peer) Environment() []string {
	return append(os.Environ(), "PLACE="+p.Spec.RunName, "NODE="+p.site.Place.Namespace(p.node).Name(),
		"CGROUP="+p.cgroup.Path, "SERVICES="+p.servicesFile())
}

// Close removes everything.
func (p *Peer) Close() error {
	var errs []error
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i]())
	}
	p.undo = nil
	return errors.Join(errs...)
}

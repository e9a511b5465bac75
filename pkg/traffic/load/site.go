package load

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/serve"
)

// SiteSpec says what is built to send load in.
type SiteSpec struct {
	Topology string // a built-in one, see traffic.TopologyNames
	RunName  string // begins the name of every namespace, see traffic.RunName
	Servers  int    // spread over the machines for them
	Port     uint16 // host order, of all servers
	Faults   serve.Faults
	// Worker returns a command whose main part is Serve: the client.
	Worker func() *exec.Cmd
	// Cgroup is what the client starts in, nil for that of this process.
	Cgroup *traffic.Cgroup
}

// Site is a topology with servers and a client process. The servers are threads of
// this process.
type Site struct {
	Topology *traffic.Topology
	Client   *Client
	Servers  []SiteServer
	serving  []*serve.Server
}

// SiteServer is a server of a site.
type SiteServer struct {
	Name    string
	Machine string
	Addrs   []netip.AddrPort // IPv4, IPv6
}

// maxServers is how many addresses a machine for servers has.
const maxServers = 60_000

// NewSite makes a site. On error nothing is left behind.
func NewSite(spec SiteSpec) (*Site, error) {
	s := &Site{}
	if err := s.build(spec); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Targets returns the addresses of all servers of the wanted families.
func (s *Site) Targets(ipv4, ipv6 bool) []netip.AddrPort {
	var targets []netip.AddrPort
	for _, server := range s.Servers {
		for _, a := range server.Addrs {
			if ipv4 && a.Addr().Is4() || ipv6 && a.Addr().Is6() {
				targets = append(targets, a)
			}
		}
	}
	return targets
}

// Stats returns what each server has seen, by its name.
func (s *Site) Stats() map[string]serve.Stats {
	all := make(map[string]serve.Stats)
	for _, server := range s.serving {
		for name, stats := range server.Stats() {
			all[name] = stats
		}
	}
	return all
}

// Close removes everything.
func (s *Site) Close() error {
	var errs []error
	if s.Client != nil {
		errs = append(errs, s.Client.Close())
	}
	for _, server := range s.serving {
		errs = append(errs, server.Close())
	}
	if s.Topology != nil {
		errs = append(errs, s.Topology.Close())
	}
	*s = Site{}
	return errors.Join(errs...)
}

func (s *Site) build(spec SiteSpec) error {
	topology, err := traffic.BuiltinTopology(spec.Topology, spec.RunName)
	if err != nil {
		return err
	}
	if spec.Servers < 1 || spec.Servers > maxServers {
		return fmt.Errorf("%d servers: there can be 1 to %d", spec.Servers, maxServers)
	}
	if s.Topology, err = traffic.NewTopology(topology); err != nil {
		return err
	}
	endpoints := make(map[string][]serve.Endpoint) // by machine
	for i := range spec.Servers {
		machine, addrs := topology.ServerAddr(i)
		server := SiteServer{Name: fmt.Sprintf("server-%d", i+1), Machine: machine}
		for _, a := range addrs {
			addr := netip.AddrPortFrom(a, spec.Port)
			server.Addrs = append(server.Addrs, addr)
			endpoints[machine] = append(endpoints[machine], serve.Endpoint{Name: server.Name, Addr: addr})
		}
		s.Servers = append(s.Servers, server)
	}
	for _, machine := range topology.Servers {
		options := serve.Options{Within: s.Topology.Namespace(machine).Do, Faults: spec.Faults}
		server, err := serve.Start(endpoints[machine], options)
		if err != nil {
			return fmt.Errorf("machine %s: %w", machine, err)
		}
		s.serving = append(s.serving, server)
	}
	s.Client, err = StartClient(s.Topology.Namespace(topology.Client), spec.Cgroup, "the client", spec.Worker())
	return err
}

package programs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// family has the addresses of a rig in one family. The Service has two ports: the first is asked at its ClusterIP, the
// second at its NodePort. Nothing listens where the other Service leads to.
type family struct {
	name, table                         string // of nft
	backend, spare, serviceIP, closedIP netip.Addr
	external, closedExternal            netip.Addr // which the router sends to node-a
	podRange                            netip.Prefix
}

var (
	ipv4 = inFamily("IPv4", "ip", "10.10.0.1", "10.10.0.2", "10.96.0.10", "10.96.0.11", "198.51.100.10", "198.51.100.11", "10.10.0.0/16")
	ipv6 = inFamily("IPv6", "ip6", "fd00:10::1", "fd00:10::2", "fd00:96::10", "fd00:96::11", "2001:db8:e::10", "2001:db8:e::11", "fd00:10::/64")

	outsideAddr = netip.MustParseAddr("203.0.113.1")
	nodeAddr    = netip.MustParseAddr("192.0.2.11")
	serverAddr  = ipv4.backend
	behindAddr  = netip.MustParseAddr("172.31.0.1")
	// externalRange has the external IPs of the Services.
	externalRange = netip.MustParsePrefix("198.51.100.0/24")
)

func inFamily(name, table, backend, spare, service, closed, external, closedExternal, pods string) family {
	at := netip.MustParseAddr
	return family{name, table, at(backend), at(spare), at(service), at(closed), at(external), at(closedExternal), netip.MustParsePrefix(pods)}
}

// of returns the address of a machine in the family.
func (f family) of(m traffic.Machine) netip.Addr {
	if f.backend.Is6() {
		return m.Addrs[1]
	}
	return m.Addrs[0]
}

const (
	nodePort   = 30080
	closedPort = 30090
	nothing    = 9 // listens there
)

// machine is a part of the rig, with what it is linked to.
type machine struct {
	traffic.Machine
	to string
}

// machinesOf are those of a rig. The server and the spare backend are on its home.
func machinesOf(home string) []machine {
	return []machine{
		{traffic.Machine{Name: "node-a", Forwards: true, Gateway: "router", Addrs: addrs("192.0.2.11", "2001:db8::11")}, "router"},
		{traffic.Machine{Name: "node-b", Forwards: true, Gateway: "router", Addrs: addrs("192.0.2.12", "2001:db8::12")}, "router"},
		{traffic.Machine{Name: "router", Forwards: true, Addrs: addrs("192.0.2.1", "2001:db8::1")}, "outside"},
		{traffic.Machine{Name: "outside", Gateway: "router", Addrs: addrs("203.0.113.1", "2001:db8:c::1")}, ""},
		{traffic.Machine{Name: "server", Node: home, Gateway: home, Forwards: true, Addrs: addrs("10.10.0.1", "fd00:10::1")}, home},
		{traffic.Machine{Name: "spare", Node: home, Gateway: home, Addrs: addrs("10.10.0.2", "fd00:10::2")}, home},
		{traffic.Machine{Name: "client", Node: "node-a", Gateway: "node-a", Addrs: addrs("10.10.0.100", "fd00:10::100")}, "node-a"},
		{traffic.Machine{Name: "behind", Gateway: "server", Addrs: addrs("172.31.0.1", "fd00:31::1")}, "server"},
	}
}

func addrs(v4, v6 string) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
}

// path is a way from a client to a Service.
type path struct {
	name, machine string
	balanced      bool // the sockets of the client are: else its packets
	nodePort      bool
	external      bool // it asks an external IP, which may be carried
}

var paths = []path{
	{name: "node", machine: "node-a", balanced: true},
	{name: "pod", machine: "client", balanced: true},
	{name: "packets", machine: "client"},
	{name: "outside", machine: "outside", nodePort: true},
}

// setting is where the server of a rig is, and what is compared there.
type setting struct {
	home     string // node-a, or node-b, to which node-a carries packets
	protocol lb.Protocol
	family
	paths   []path
	proxies []contender
}

// rig is a node with the server of one program, which may be on another node.
type rig struct {
	setting
	machines      []machine
	t             *testing.T
	topology      *traffic.Topology
	cgroups       map[string]*traffic.Cgroup // of what runs on each node and in its pods
	port, outside uint16                     // where the server listens for clients of the ClusterIP and of the NodePort
	proxy         proxy                      // that balances
	dir           string                     // of files
	attached      []link.Link                // programs of others
}

func newRig(t *testing.T, s setting, port, outside uint16) *rig {
	t.Helper()
	testenv.Need(t)
	r := &rig{setting: s, machines: machinesOf(s.home), cgroups: map[string]*traffic.Cgroup{}, t: t, port: port, outside: outside, dir: t.TempDir()}
	if outside == 0 {
		r.outside = port
	}
	spec := traffic.TopologySpec{Name: traffic.RunName("hg-programs"), Client: "outside"}
	for _, m := range r.machines {
		spec.Machines = append(spec.Machines, m.Machine)
		if m.to != "" {
			spec.Links = append(spec.Links, traffic.Link{A: m.Name, B: m.to})
		}
	}
	var err error
	if r.topology, err = traffic.NewTopology(spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.topology.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, n := range r.nodes() {
		c, err := traffic.NewCgroup(testenv.Cgroup(t), n.Name)
		if err != nil {
			t.Fatal(err)
		}
		r.cgroups[n.Name] = c
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(r.detach)
	for _, m := range r.machines {
		if m.Node != "" { // without a gateway, as a CNI leads to a pod
			r.must(m.Node, "ip", "route", "replace", m.Addrs[0].String(), "dev", "hg-"+m.Name, "src", r.topology.Machine(m.Node).Addrs[0].String())
		}
	}
	r.must("router", "ip", "route", "replace", externalRange.String(), "via", nodeAddr.String(), "dev", "hg-node-a", "onlink")
	return r
}

// nodes are those that balance: node-a, and the home of the server.
func (r *rig) nodes() []machine {
	return slices.DeleteFunc(slices.Clone(r.machines), func(m machine) bool { return m.Name != "node-a" && m.Name != r.home })
}

// cgroup is that of the node where a machine is, and the home's for what is at no node.
func (r *rig) cgroup(machine string) *traffic.Cgroup {
	for _, name := range []string{r.topology.Machine(machine).Node, machine} {
		if c := r.cgroups[name]; c != nil {
			return c
		}
	}
	return r.cgroups[r.home]
}

// at is where clients of a path ask the Service; where it is closed, the one that leads nowhere.
func (r *rig) at(p path, closed bool) netip.AddrPort {
	switch {
	case p.nodePort && closed:
		return netip.AddrPortFrom(r.of(r.topology.Machine("node-a")), closedPort)
	case p.nodePort:
		return netip.AddrPortFrom(r.of(r.topology.Machine("node-a")), nodePort)
	case p.external && closed:
		return netip.AddrPortFrom(r.closedExternal, r.port)
	case p.external:
		return netip.AddrPortFrom(r.external, r.port)
	case closed:
		return netip.AddrPortFrom(r.closedIP, r.port)
	}
	return netip.AddrPortFrom(r.serviceIP, r.port)
}

// run runs a program on a machine to its end.
func (r *rig) run(machine, name string, args ...string) error {
	_, err := r.output(machine, name, args...)
	return err
}

// output does so, and returns what it says.
func (r *rig) output(machine, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var said testenv.LockedBuffer
	cmd.Stdout, cmd.Stderr = &said, &said
	r.cgroup(machine).Adopt(cmd)
	if err := r.topology.Namespace(machine).Start(cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, args, err, said.String())
	}
	return said.String(), nil
}

// must does so, and fails the test where that fails.
func (r *rig) must(machine, name string, args ...string) {
	r.t.Helper()
	if err := r.run(machine, name, args...); err != nil {
		r.t.Fatal(err)
	}
}

// serve starts a server on a machine, which runs until the test ends, and waits until it listens.
func (r *rig) serve(machine string, at netip.AddrPort, name string, args ...string) {
	r.t.Helper()
	cmd := exec.Command(name, args...)
	said := &testenv.LockedBuffer{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.WaitDelay = time.Second
	r.cgroup(machine).Adopt(cmd)
	if err := r.topology.Namespace(machine).Start(cmd); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		err := <-ended
		if r.t.Failed() {
			r.t.Logf("%s ends: %v, and says:\n%s", name, err, said)
		}
	})
	for range 600 {
		err := r.topology.Namespace(machine).Do(func() error {
			c, err := net.DialTimeout("tcp", at.String(), time.Second)
			if err == nil {
				err = c.Close()
			}
			return err
		})
		if err == nil {
			return
		}
		select {
		case err := <-ended:
			ended <- err
			r.t.Fatalf("%s has ended: %v: %s", name, err, said)
		case <-time.After(100 * time.Millisecond):
		}
	}
	r.t.Fatalf("%s does not listen at %s: %s", name, at, said)
}

// needs skips the test where programs are missing.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs %s: %v", p, err)
		}
	}
}

// change has another backend come to the Service and leave it.
func (r *rig) change() error {
	return errors.Join(r.proxy.balance(r.backend, r.spare), r.proxy.balance(r.backend))
}

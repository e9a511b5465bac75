package hostile_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/pkg/traffic/serve"
	"github.com/headgate/headgate/tests/testenv"
)

// Addresses of the stage. Servers listen on 8080; the node has one of its own.
var (
	nodeAddr    = netip.MustParseAddr("192.0.2.11")
	outsideAddr = netip.MustParseAddr("203.0.113.1")
	web1Addr    = netip.MustParseAddr("10.10.0.1")
	web2Addr    = netip.MustParseAddr("10.10.0.2")
	clientAddr  = netip.MustParseAddr("10.10.0.100")
	tenantAddr  = netip.MustParseAddr("10.10.0.66")

	clusterIP    = netip.MustParseAddrPort("10.96.0.10:80")
	loadBalancer = netip.MustParseAddrPort("198.51.100.50:80")
	nodePort     = netip.AddrPortFrom(nodeAddr, 30080)
	datagramPort = netip.AddrPortFrom(nodeAddr, 30081)
	datagramsIP  = netip.MustParseAddrPort("10.96.0.11:80")
	apiServer    = netip.AddrPortFrom(nodeAddr, 6443)
	// nodeServers are those of the node itself.
	nodeServers = []netip.AddrPort{netip.AddrPortFrom(nodeAddr, 2222), apiServer, netip.AddrPortFrom(nodeAddr, 10250)}
	podServer   = netip.AddrPortFrom(web1Addr, 8080) // a backend, asked past the Services
)

// machines are the pods of the node and their addresses.
var machines = map[string][2]netip.Addr{
	"web-1":  {web1Addr, netip.MustParseAddr("fd00:10::1")},
	"web-2":  {web2Addr, netip.MustParseAddr("fd00:10::2")},
	"client": {clientAddr, netip.MustParseAddr("fd00:10::100")},
	"tenant": {tenantAddr, netip.MustParseAddr("fd00:10::66")},
}

// stage is the node with its agent, and everybody around it.
type stage struct {
	tb       testing.TB
	topology *traffic.Topology
	cgroup   *traffic.Cgroup // of what runs on the node
	agent    *testenv.Agent
	wire     *wire
	callers  []*caller
}

// newStage makes the network and the victim's servers, and starts the agent.
func newStage(tb testing.TB, manifests map[string]string, flags ...string) *stage {
	tb.Helper()
	testenv.Need(tb)
	s := &stage{tb: tb}
	s.makePlace()
	var err error
	if s.cgroup, err = traffic.NewCgroup(testenv.Cgroup(tb), "node-a"); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.cgroup.Close(); err != nil {
			tb.Error(err)
		}
	})
	s.serve("web-1", "web-1", web1Addr, 8080)
	s.serve("web-2", "web-2", web2Addr, 8080)
	s.serve("tenant", "thief", tenantAddr, 8080)
	s.serve("tenant", "thief", tenantAddr, apiServer.Port())
	for _, at := range nodeServers {
		s.serve("node-a", "node", at.Addr(), at.Port())
	}
	s.wire = s.openWire()
	s.agent = testenv.NewAgent(tb, manifests)
	s.agent.Cgroup, s.agent.Run = s.cgroup.Path, s.topology.Namespace("node-a").Start
	s.agent.Flags = append([]string{"--devices", "hg-outside"}, flags...)
	s.start()
	return s
}

func (s *stage) makePlace() {
	s.tb.Helper()
	spec := traffic.TopologySpec{Name: traffic.RunName("hg-hostile"), Client: "outside", Machines: []traffic.Machine{
		{Name: "node-a", Forwards: true, Gateway: "outside", Addrs: []netip.Addr{nodeAddr, netip.MustParseAddr("2001:db8::11")}},
		{Name: "outside", Gateway: "node-a", Addrs: []netip.Addr{outsideAddr, netip.MustParseAddr("2001:db8:c::1")}},
	}, Links: []traffic.Link{{A: "node-a", B: "outside"}}}
	for name, addrs := range machines {
		spec.Machines = append(spec.Machines, traffic.Machine{Name: name, Node: "node-a", Gateway: "node-a", Addrs: addrs[:]})
		spec.Links = append(spec.Links, traffic.Link{A: "node-a", B: name})
	}
	var err error
	if s.topology, err = traffic.NewTopology(spec); err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() {
		if err := s.topology.Close(); err != nil {
			s.tb.Error(err)
		}
	})
}

// do runs f on a machine.
func (s *stage) do(machine string, f func() error) {
	s.tb.Helper()
	if err := s.topology.Namespace(machine).Do(f); err != nil {
		s.tb.Fatalf("%s: %v", machine, err)
	}
}

// serve starts a server of both protocols that says its name.
func (s *stage) serve(machine, name string, addr netip.Addr, port uint16) *serve.Server {
	s.tb.Helper()
	endpoint := serve.Endpoint{Name: name, Addr: netip.AddrPortFrom(addr, port)}
	server, err := serve.Start([]serve.Endpoint{endpoint}, serve.Options{Loops: 1, Within: s.topology.Namespace(machine).Do})
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { _ = server.Close() })
	return server
}

// countDatagrams counts the datagrams that come to an address of a machine.
func (s *stage) countDatagrams(machine string, at netip.AddrPort) *atomic.Uint64 {
	s.tb.Helper()
	received := new(atomic.Uint64)
	s.do(machine, func() error {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		s.tb.Cleanup(func() { _ = c.Close() })
		go func() {
			for b := make([]byte, 2048); ; received.Add(1) {
				if _, _, err := c.ReadFromUDPAddrPort(b); err != nil {
					return
				}
			}
		}()
		return nil
	})
	return received
}

// role returns the command that makes this binary a process of another kind.
func role(name string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	// Go's signals of preemption would interrupt what waits in a system call.
	cmd.Env = append(append(os.Environ(), asRole+"="+name, "GODEBUG=asyncpreemptoff=1"), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// start starts the agent, and waits until it has attached what packets from outside need:
// that comes after all else is in force.
func (s *stage) start() {
	s.tb.Helper()
	s.agent.Start()
	for range 2000 {
		if attached, _ := filepath.Glob(filepath.Join(s.agent.Root, "links", "[dl][e3]*_in_*")); len(attached) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.tb.Fatal("nothing is attached to the device that leads outside")
}

// coldStart starts the agent with nothing of what it had in the kernel.
func (s *stage) coldStart() {
	s.tb.Helper()
	s.agent.Kill()
	if err := datapath.Cleanup(s.agent.Root); err != nil {
		s.tb.Fatal(err)
	}
	s.start()
}

// withdraw takes manifests away, and waits until what they made is gone.
func (s *stage) withdraw(names ...string) {
	s.tb.Helper()
	for _, name := range names {
		s.agent.Remove(name)
	}
	for range 6000 {
		if s.agent.Status().Frontends == frontends {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.tb.Fatalf("%d frontends are left, want %d", s.agent.Status().Frontends, frontends)
}

// memory returns the largest resident size that the agent has had, in MiB.
func (s *stage) memory() (mib int) {
	s.tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.agent.PID()))
	if err != nil {
		s.tb.Fatal(err)
	}
	return field(string(text), "VmHWM:") / 1024
}

// forgetMemory begins the measurement of memory again.
func (s *stage) forgetMemory() {
	s.tb.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.agent.PID()), []byte("5"), 0); err != nil {
		s.tb.Fatal(err)
	}
}

// dial opens a connected socket of a machine, past Go's dialer: that has its own
// idea of 0.0.0.0.
func dial(typ int, to netip.AddrPort, timeout time.Duration) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	for _, option := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &limit); err != nil {
			return fd, err
		}
	}
	return fd, unix.Connect(fd, sockaddr(to))
}

func sockaddr(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

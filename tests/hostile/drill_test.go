package hostile_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

// The Services of the drill have all features between them. The pod of the tenant is a
// backend that comes and goes, but its server never ends: it outlives each endpoint.
var (
	echoTargets = []string{"{name: t, protocol: TCP, port: 7000}", "{name: u, protocol: UDP, port: 7000}"}

	steady = object{
		namespace: "drill", name: "steady", status: loadBalancer.Addr().String(), ports: echoPorts(30080),
		annotations: map[string]string{"headgate.dev/algorithm": "lc", "headgate.dev/weights": "10.10.0.1=3", "headgate.dev/zone-policy": "prefer-zone", "headgate.dev/slow-start": "1s"},
		spec:        []string{"type: LoadBalancer", "clusterIP: 10.96.0.10", "clusterIPs: [10.96.0.10]", "loadBalancerSourceRanges: [203.0.113.0/24, 10.0.0.0/8]"},
	}
	sticky = object{
		namespace: "drill", name: "sticky", ports: echoPorts(30081),
		annotations: map[string]string{"headgate.dev/algorithm": "maglev", "headgate.dev/zone-policy": "spill", "headgate.dev/drain-time": "10m"},
		spec:        []string{"type: NodePort", "clusterIP: 10.96.0.20", "clusterIPs: [10.96.0.20]", "sessionAffinity: ClientIP"},
	}
	probed = object{
		namespace: "drill", name: "probed", ports: echoPorts(30082),
		annotations: map[string]string{"headgate.dev/algorithm": "rr", "headgate.dev/zone-policy": "prefer-node", "headgate.dev/probe": "tcp", "headgate.dev/probe-interval": "1s", "headgate.dev/drain-time": "10m"},
		spec:        []string{"type: NodePort", "clusterIP: 10.96.0.30", "clusterIPs: [10.96.0.30]"},
	}
	abrupt = object{
		namespace: "drill", name: "abrupt", ports: echoPorts(30083),
		annotations: map[string]string{"headgate.dev/algorithm": "p2c"},
		spec:        []string{"type: NodePort", "clusterIP: 10.96.0.40", "clusterIPs: [10.96.0.40]"},
	}
)

// echoPorts are the ports of a Service of both protocols.
func echoPorts(nodePort int) []string {
	return []string{
		fmt.Sprintf("{name: t, protocol: TCP, port: 80, targetPort: 7000, nodePort: %d}", nodePort),
		fmt.Sprintf("{name: u, protocol: UDP, port: 80, targetPort: 7000, nodePort: %d}", nodePort),
	}
}

// drillFrontends is how many these have: a ClusterIP and a NodePort each, and an address of a
// load balancer, for two protocols.
const drillFrontends = (4*2 + 1) * 2

// others are the node in its zone, and the tenant's pod, whose sockets are left alone.
const others = `apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {topology.kubernetes.io/zone: zone-a}}
---
apiVersion: v1
kind: Pod
metadata: {name: tenant, namespace: drill, annotations: {headgate.dev/socket-balancing: "off"}}
spec: {nodeName: node-a, containers: [{name: a, image: a}]}
status: {podIPs: [{ip: 10.10.0.66}, {ip: "fd00:10::66"}]}
`

// crowdOf is how many Services come with each kill: 100 kills make 4,000.
const crowdOf = 40

// crowd returns the i-th lot of Services, each with an endpoint that no other has.
func crowd(i int) string {
	var all string
	for n := i * crowdOf; n < (i+1)*crowdOf; n++ {
		all += object{
			namespace: "crowd", name: fmt.Sprint("s", n), ports: []string{"{port: 80, targetPort: 7000}"}, targets: []string{"{port: 7000}"},
			spec:      []string{fmt.Sprintf("clusterIP: 10.97.%d.%d", n/250, n%250+1)},
			endpoints: []netip.Addr{netip.AddrFrom4([4]byte{10, 98, byte(n / 250), byte(n%250 + 1)})},
		}.yaml()
	}
	return all
}

// drill is a stage whose agent is killed all the time.
type drill struct {
	*stage
	rand    *rand.Rand
	began   time.Time
	lives   []life
	changes []change
	mayLose int // datagrams, to which no answer comes
	talkers []*talker
	mu      sync.Mutex              // of heard
	heard   map[visitor][]time.Time // who began something with the backend that comes and goes
}

// visitor is one end of a connection.
type visitor struct {
	protocol int // type of the socket
	at       netip.AddrPort
}

// talker is a process that talks to a Service until its input ends.
type talker struct {
	who, protocol string
	to            netip.AddrPort
	service       *object
	cmd           *exec.Cmd
	in            io.Closer
	said          testenv.LockedBuffer
}

// newDrill makes the stage, starts its servers and those who talk to them.
func newDrill(t *testing.T, r *rand.Rand) *drill {
	t.Helper()
	s := newStage(t, map[string]string{"others.yaml": others, "steady.yaml": withEndpoints(steady, false)}, "--probes", "allow", "--pod-devices", "marked", "--flows", "65536")
	d := &drill{stage: s, rand: r, heard: map[visitor][]time.Time{}, began: time.Now()}
	for machine, addr := range map[string]netip.Addr{"web-1": web1Addr, "web-2": web2Addr, "tenant": tenantAddr} {
		d.echo(machine, netip.AddrPortFrom(addr, 7000))
	}
	d.listen()
	d.change(true)
	d.awaitFrontends(drillFrontends)
	for _, protocol := range []string{"tcp", "udp"} {
		for _, service := range []*object{&steady, &sticky, &probed, &abrupt} {
			cluster, port := service.addresses()
			d.talk("client", protocol, cluster, service)
			d.talk("outside", protocol, port, service)
		}
		d.talk("node-a", protocol, clusterIP, &steady)
		d.talk("tenant", protocol, clusterIP, &steady)
	}
	d.talk("outside", "tcp", loadBalancer, &steady)
	return d
}

// addresses returns where a Service of the drill is found in the cluster, and from outside.
func (o *object) addresses() (cluster, port netip.AddrPort) {
	i := slices.IndexFunc([]string{"steady", "sticky", "probed", "abrupt"}, func(name string) bool { return name == o.name })
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(10 * (i + 1))}), 80), netip.AddrPortFrom(nodeAddr, uint16(30080+i))
}

// withEndpoints returns a Service of the drill with two endpoints or all three.
func withEndpoints(o object, all bool) string {
	o.targets, o.elsewhere, o.endpoints = echoTargets, web2Addr, []netip.Addr{web1Addr, web2Addr}
	if all {
		o.endpoints = append(o.endpoints, tenantAddr)
	}
	return o.yaml()
}

// awaitFrontends returns when so many are in force.
func (d *drill) awaitFrontends(want int) {
	d.tb.Helper()
	for range 6000 {
		if d.agent.Status().Frontends == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.tb.Fatalf("%d frontends, want %d", d.agent.Status().Frontends, want)
}

// talk starts a process that talks to a Service.
func (d *drill) talk(who, speaks string, to netip.AddrPort, service *object) {
	d.tb.Helper()
	talker := &talker{who: who, protocol: speaks, to: to, service: service, cmd: role("talk", protocol+"="+speaks, target+"="+to.String())}
	if service == &steady {
		talker.cmd.Env = append(talker.cmd.Env, lasting+"=1")
	}
	if who != "outside" {
		d.cgroup.Adopt(talker.cmd)
	}
	var err error
	if talker.in, err = talker.cmd.StdinPipe(); err != nil {
		d.tb.Fatal(err)
	}
	talker.cmd.Stdout = &talker.said
	if err := d.topology.Namespace(who).Start(talker.cmd); err != nil {
		d.tb.Fatal(err)
	}
	d.talkers = append(d.talkers, talker)
}

// echo serves what the role talk expects.
func (d *drill) echo(machine string, at netip.AddrPort) {
	d.tb.Helper()
	d.do(machine, func() error {
		l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return errors.Join(err, l.Close())
		}
		d.tb.Cleanup(func() { _ = l.Close(); _ = c.Close() })
		go echoTCP(l, machine+" ")
		go echoUDP(c, machine+" ")
		return nil
	})
}

func echoTCP(l *net.TCPListener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			b := make([]byte, 64)
			for n, err := c.Read(b); err == nil; n, err = c.Read(b) {
				_, _ = c.Write(append([]byte(name), b[:n]...))
			}
		}()
	}
}

func echoUDP(c *net.UDPConn, name string) {
	b := make([]byte, 64)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteToUDPAddrPort(append([]byte(name), b[:n]...), from)
		}
	}
}

// listen notes who begins something with the backend that comes and goes, whether or
// not its server ever hears of it.
func (d *drill) listen() {
	d.tb.Helper()
	socket := -1
	d.do("tenant", func() (err error) {
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0x0008)
		return err
	})
	stopped := make(chan struct{})
	d.tb.Cleanup(func() { _ = unix.Shutdown(socket, unix.SHUT_RDWR); <-stopped; _ = unix.Close(socket) })
	limit := unix.Timeval{Usec: 200_000}
	if err := errors.Join(unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)); err != nil {
		d.tb.Fatal(err)
	}
	go func() {
		defer close(stopped)
		b := make([]byte, 64)
		for d.tb.Context().Err() == nil {
			if n, _, err := unix.Recvfrom(socket, b, 0); err == nil && n >= 34 {
				d.hear(b)
			}
		}
	}()
}

// hear notes a SYN or a datagram.
func (d *drill) hear(packet []byte) {
	typ := map[byte]int{unix.IPPROTO_TCP: unix.SOCK_STREAM, unix.IPPROTO_UDP: unix.SOCK_DGRAM}[packet[9]]
	if typ == unix.SOCK_STREAM && packet[33]&0x02 == 0 {
		return
	}
	from := visitor{typ, netip.AddrPortFrom(netip.AddrFrom4([4]byte(packet[12:])), binary.BigEndian.Uint16(packet[20:]))}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard[from] = append(d.heard[from], time.Now())
}

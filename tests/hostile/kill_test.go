package hostile_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

// killCount is how often the agent is killed, killSeed what decides when.
const (
	killCount = "HEADGATE_KILLS"
	killSeed  = "HEADGATE_KILL_SEED"
)

// The Services of the drill have all features between them, and the pod of the tenant
// as a backend that comes and goes.
var (
	echoPorts   = []string{"{name: t, protocol: TCP, port: 80, targetPort: 7000, nodePort: 30080}", "{name: u, protocol: UDP, port: 80, targetPort: 7000, nodePort: 30080}"}
	echoTargets = []string{"{name: t, protocol: TCP, port: 7000}", "{name: u, protocol: UDP, port: 7000}"}

	weighted = object{
		namespace: "drill", name: "web", elsewhere: web2Addr, status: loadBalancer.Addr().String(), ports: echoPorts, targets: echoTargets,
		annotations: map[string]string{"headgate.dev/algorithm": "lc", "headgate.dev/weights": "10.10.0.1=3", "headgate.dev/zone-policy": "prefer-zone", "headgate.dev/slow-start": "1s"},
		spec:        []string{"type: LoadBalancer", "clusterIP: 10.96.0.10", "clusterIPs: [10.96.0.10]", "loadBalancerSourceRanges: [203.0.113.0/24, 10.0.0.0/8]"},
	}
	sticky = object{
		namespace: "drill", name: "sticky", ports: []string{"{name: t, protocol: TCP, port: 80, targetPort: 7000}"}, targets: echoTargets[:1],
		annotations: map[string]string{"headgate.dev/algorithm": "maglev", "headgate.dev/zone-policy": "spill", "headgate.dev/drain-time": "2s"},
		spec:        []string{"clusterIP: 10.96.0.20", "clusterIPs: [10.96.0.20]", "sessionAffinity: ClientIP"},
	}
	probed = object{
		namespace: "drill", name: "probed", elsewhere: web2Addr, ports: []string{"{name: t, protocol: TCP, port: 80, targetPort: 7000}"}, targets: echoTargets[:1],
		annotations: map[string]string{"headgate.dev/algorithm": "rr", "headgate.dev/zone-policy": "prefer-node", "headgate.dev/probe": "tcp", "headgate.dev/probe-interval": "1s"},
		spec:        []string{"clusterIP: 10.96.0.30", "clusterIPs: [10.96.0.30]"},
	}
)

// zoned is the node in its zone.
const zoned = `apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {topology.kubernetes.io/zone: zone-a}}
`

// drill is a stage whose agent is killed all the time.
type drill struct {
	*stage
	rand    *rand.Rand
	absent  []interval              // of the backend that comes and goes, as far as the kernel can know
	present bool                    // in the files
	mu      sync.Mutex              // of heard
	heard   map[visitor]bool        // who sent something to that backend
	talkers map[*exec.Cmd]io.Closer // closed: the process ends
	said    *testenv.LockedBuffer
}

type interval struct{ begin, end time.Time } // without end: it lasts

// visitor is one end of a connection.
type visitor struct {
	protocol int // type of the socket
	at       netip.AddrPort
}

// write puts the Services in place, with the third backend or without.
func (d *drill) write(present bool) {
	d.present = present
	endpoints := []netip.Addr{web1Addr, web2Addr, tenantAddr}[:2]
	if present {
		endpoints = endpoints[:3]
	} else if n := len(d.absent); n == 0 || !d.absent[n-1].end.IsZero() {
		d.absent = append(d.absent, interval{begin: time.Now()})
	}
	for _, o := range []object{weighted, sticky, probed} {
		o.endpoints = endpoints
		d.agent.Write(o.name+".yaml", o.yaml())
	}
}

// settle notes that an agent has read everything: a backend that is present is so in
// the kernel, too.
func (d *drill) settle() {
	if n := len(d.absent); d.present && n > 0 && d.absent[n-1].end.IsZero() {
		d.absent[n-1].end = time.Now().Add(time.Second)
	}
}

// explains says whether a failure is due: of a connection to the backend that had been
// withdrawn while it stood.
func (d *drill) explains(o outcome) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.heard[visitor{o.Protocol, o.Local}] {
		return false
	}
	for _, a := range d.absent {
		if o.Ended.After(a.begin) && (a.end.IsZero() || o.Began.Before(a.end)) {
			return true
		}
	}
	return false
}

// TestKillsBreakNoConnection kills the agent at random moments, while endpoints change,
// and starts it every fourth time with another size of a map, which is an upgrade in
// place. Only connections to a backend that was withdrawn may fail.
func TestKillsBreakNoConnection(t *testing.T) {
	seed := uint64(numberOf(t, killSeed, int(time.Now().UnixNano()&0xffff_ffff)))
	t.Logf("%s=%d", killSeed, seed)
	d := newDrill(t, rand.New(rand.NewPCG(seed, 1)))
	finished := 0
	kills := numberOf(t, killCount, 20)
	for i := range kills {
		d.agent.Kill()
		if i%4 == 3 {
			d.agent.Promises ^= 1<<12 | 1<<13
		}
		d.agent.Launch()
		change := d.rand.IntN(2) == 0
		early := time.Duration(d.rand.IntN(300)) * time.Millisecond
		time.Sleep(early)
		if change {
			d.write(!d.present)
		}
		select {
		case <-d.agent.Ready:
			finished++
			if !change { // or it may have been ready before the change
				d.settle()
			}
		case <-time.After(time.Duration(d.rand.IntN(600)) * time.Millisecond):
		}
	}
	d.agent.Kill()
	d.agent.Start()
	d.settle()
	time.Sleep(time.Second)
	d.judge(t)
	t.Logf("%d of %d agents came to the end before they were killed", finished, kills)
}

// newDrill makes the stage, starts its servers and those who talk to them.
func newDrill(t *testing.T, r *rand.Rand) *drill {
	t.Helper()
	d := &drill{stage: newStage(t, map[string]string{"node.yaml": zoned}, "--probes", "allow"), rand: r, heard: map[visitor]bool{}, talkers: map[*exec.Cmd]io.Closer{}, said: &testenv.LockedBuffer{}}
	for machine, addr := range map[string]netip.Addr{"web-1": web1Addr, "web-2": web2Addr, "tenant": tenantAddr} {
		d.echo(machine, netip.AddrPortFrom(addr, 7000))
	}
	d.listen()
	d.write(true)
	d.awaitServices()
	for who, to := range map[string][]string{
		"client":  {"tcp " + clusterIP.String(), "udp " + clusterIP.String(), "tcp 10.96.0.20:80", "tcp 10.96.0.30:80"},
		"node-a":  {"tcp " + clusterIP.String()},
		"outside": {"tcp " + loadBalancer.String(), "udp " + nodePort.String()},
	} {
		for _, spec := range to {
			d.talk(who, spec)
		}
	}
	return d
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

// listen notes who sends packets to the backend that comes and goes, whether or not
// its server ever hears of them.
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
			if n, _, err := unix.Recvfrom(socket, b, 0); err == nil && n >= 24 {
				d.hear(b)
			}
		}
	}()
}

func (d *drill) hear(packet []byte) {
	typ := map[byte]int{unix.IPPROTO_TCP: unix.SOCK_STREAM, unix.IPPROTO_UDP: unix.SOCK_DGRAM}[packet[9]]
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte(packet[12:])), binary.BigEndian.Uint16(packet[20:]))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard[visitor{typ, from}] = true
}

// awaitServices returns when all Services are in force: three addresses of one over
// both protocols, and one of each of the others.
func (d *drill) awaitServices() {
	d.tb.Helper()
	for range 3000 {
		if d.agent.Status().Frontends == 3*2+1+1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.tb.Fatalf("%d frontends, want 8", d.agent.Status().Frontends)
}

// talk starts a process that talks to "tcp address:port" until the end.
func (d *drill) talk(who, spec string) {
	d.tb.Helper()
	cmd := role("talk", protocol+"="+spec[:3], target+"="+spec[4:])
	if who != "outside" {
		d.cgroup.Adopt(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		d.tb.Fatal(err)
	}
	cmd.Stdout = d.said
	if err := d.place.Namespace(who).Start(cmd); err != nil {
		d.tb.Fatal(err)
	}
	d.talkers[cmd] = in
}

// judge ends all talk and looks at what failed.
func (d *drill) judge(t *testing.T) {
	t.Helper()
	for cmd, in := range d.talkers {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("talk: %v", err)
		}
	}
	made, due := 0, map[string]int{}
	var worst time.Duration
	for all := json.NewDecoder(strings.NewReader(d.said.String())); ; {
		var o outcome
		if err := all.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		switch {
		case o.Error == "":
			made, worst = made+o.Made, max(worst, o.Worst)
		case d.explains(o):
			due[fmt.Sprintf("%s, %s by %q", o.Local.Addr(), o.Error, o.Name)]++
		default:
			t.Errorf("no endpoint was withdrawn from it: %+v", o)
		}
	}
	t.Logf("%d connections, the worst took %v to be answered; with the endpoint that was withdrawn ended: %v", made, worst, due)
	if made == 0 {
		t.Error("no connection was made")
	}
}

// numberOf is a number that somebody may set.
func numberOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is %q: write a number", variable, text)
	}
	return n
}

package capabilities_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/examples"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// service is an address of examples/, and backends are those behind it.
const service = "10.96.0.10:80"

var backends = []string{"10.244.1.1", "10.244.1.2", "10.244.2.1"}

// endpoints is the file of examples/ that names the backends.
const endpoints = "web-endpoints.yaml"

// patience is how long anything may take.
const patience = 20 * time.Second

// does is what an agent was seen to do.
type does struct {
	Balance bool // clients of a Service reach a backend
	Adopt   bool // the next agent goes on with the programs of the one before
	Restore bool // programs that somebody detaches come back, and so do pins
	Tell    bool // a client in a pod hears at once that its backend is gone
	Warn    bool // where it did not, the log says so
}

// observe sees what an agent does that has just these capabilities.
func observe(tb testing.TB, caps []string) does {
	tb.Helper()
	n := newNode(tb, caps)
	first, ready := n.start()
	if !ready {
		return does{}
	}
	client := n.mustClient()
	program := n.mustProgram()
	first.stop()
	second, ready := n.start()
	if !ready {
		tb.Fatal("the second agent is not ready")
	}
	got := does{Balance: true, Adopt: n.mustProgram() == program}
	got.Restore = n.restores()
	n.mustRemove(endpoints)
	n.mustBecome(func() bool { // beside other changes
		got.Tell, got.Warn = client.mustAsk() == "aborted", second.hasSaid("close sockets of removed backends")
		return got.Tell || got.Warn
	}, true)
	n.mustBecome(balanced, false)
	return got
}

// restores takes programs out of force, then their pins away, and sees whether the
// agent puts both back.
func (n *node) restores() bool {
	n.Helper()
	links := filepath.Join(n.bpfRoot, "links")
	l, err := link.LoadPinnedLink(filepath.Join(links, "connect4"), nil)
	if err != nil {
		n.Fatal(err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil {
		n.Fatal(err)
	}
	n.mustBecome(balanced, true)
	// The agent may put a pin back while the others are still being removed.
	n.mustBecome(func() bool { return os.RemoveAll(links) == nil }, true)
	n.mustBecome(func() bool { _, err := os.Stat(filepath.Join(links, "connect4")); return err == nil }, true)
	// A program that was attached again while its pin was removed is out of force until the
	// agent looks once more.
	n.mustBecome(balanced, true)
	return true
}

// takesOver sees whether an agent that has just these capabilities goes on with
// the programs that one with all of root's has put in force.
func takesOver(tb testing.TB, caps []string) bool {
	tb.Helper()
	n := newNode(tb, nil)
	first := mustStart(n, "agent", &syscall.SysProcAttr{}, n.args("--init-only")...)
	if _, err := io.Copy(&first.said, first.out); err != nil {
		tb.Fatal(err)
	}
	if err := first.cmd.Wait(); err != nil {
		tb.Fatalf("headgate agent --init-only: %v\n%s", err, &first.said)
	}
	if balanced() {
		tb.Fatal("balanced without an agent")
	}
	program := n.mustProgram()
	n.caps = caps
	second, ready := n.start()
	defer second.stop()
	return ready && balanced() && n.mustProgram() == program
}

// filters sees whether an agent that has just these capabilities attaches filters to a device.
func filters(tb testing.TB, caps []string) bool {
	tb.Helper()
	n := newNode(tb, caps)
	device := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hg0"}, PeerName: "hg1"}
	if err := errors.Join(netlink.LinkAdd(device), netlink.LinkSetUp(device)); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = netlink.LinkDel(device) })
	agent, ready := n.start("--filters", "--devices", "hg0")
	if !ready {
		return false
	}
	defer agent.stop()
	attached := false
	n.mustBecome(func() bool {
		list, err := netdev.Filters()
		if err != nil {
			tb.Fatal(err)
		}
		attached = len(list) > 0
		return attached || agent.hasSaid("operation not permitted")
	}, true)
	return attached
}

// balanced says whether a connection to the Service reaches a backend.
func balanced() bool {
	c, err := net.DialTimeout("tcp", service, patience)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// node is a folder of manifests, with an agent of few capabilities.
type node struct {
	testing.TB
	manifests, bpfRoot string
	caps               []string
}

func newNode(tb testing.TB, caps []string) *node {
	tb.Helper()
	n := &node{TB: tb, manifests: tb.TempDir(), bpfRoot: testenv.BPFRoot(tb), caps: caps}
	for _, name := range []string{"node.yaml", "web.yaml", endpoints} {
		n.mustWrite(name)
	}
	for _, address := range backends {
		testenv.AddAddress(tb, address)
		l, err := net.Listen("tcp", address+":8080")
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { l.Close() })
		go accept(l)
	}
	return n
}

// mustWrite puts a file of examples/ among the manifests.
func (n *node) mustWrite(name string) {
	n.Helper()
	data, err := examples.FS.ReadFile(name)
	if err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.manifests, name), data, 0o600); err != nil {
		n.Fatal(err)
	}
}

func (n *node) mustRemove(name string) {
	n.Helper()
	if err := os.Remove(filepath.Join(n.manifests, name)); err != nil {
		n.Fatal(err)
	}
}

// mustBecome waits until something is as wanted.
func (n *node) mustBecome(is func() bool, want bool) {
	n.Helper()
	for end := time.Now().Add(patience); is() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			n.Fatalf("did not become %v in %s", want, patience)
		}
	}
}

// mustProgram returns the program that clients of IPv4 pass.
func (n *node) mustProgram() ebpf.ProgramID {
	n.Helper()
	l, err := link.LoadPinnedLink(filepath.Join(n.bpfRoot, "links", "connect4"), nil)
	if err != nil {
		n.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		n.Fatal(err)
	}
	return info.Program
}

// start starts an agent and waits until it is ready, or has given up.
func (n *node) start(flags ...string) (agent *process, ready bool) {
	n.Helper()
	agent = mustStart(n, "confine", &syscall.SysProcAttr{}, n.args(flags...)...)
	for {
		line, err := agent.out.ReadString('\n')
		if err != nil {
			agent.stop()
			return agent, false
		}
		n.Log(strings.TrimSpace(line))
		if strings.Contains(line, `"msg":"ready"`) {
			agent.listen()
			return agent, true
		}
	}
}

// args are the arguments of an agent.
func (n *node) args(more ...string) []string {
	return append([]string{"agent", "--manifests", n.manifests, "--node-name", "node-a", "--log-format", "json",
		"--cgroup", testenv.Cgroup(n), "--bpf-root", n.bpfRoot}, more...)
}

// mustClient starts a client in a network namespace of its own, and waits until
// it is connected.
func (n *node) mustClient() *process {
	n.Helper()
	p := mustStart(n, "client", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET})
	if line := p.mustLine(); line != "connected" {
		n.Fatalf("the client says %q", line)
	}
	return p
}

// process is the test binary as another program.
type process struct {
	testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader // both of its outputs

	mu       sync.Mutex
	said     strings.Builder // since it was ready
	listened chan struct{}   // closed when it says no more
}

func mustStart(n *node, stage string, how *syscall.SysProcAttr, args ...string) *process {
	n.Helper()
	how.Pdeathsig = syscall.SIGKILL
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr = how
	cmd.Env = append(os.Environ(), stageVar+"="+stage, capsVar+"="+strings.Join(n.caps, ","))
	in, err := cmd.StdinPipe()
	if err != nil {
		n.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	p := &process{TB: n.TB, cmd: cmd, in: in, out: bufio.NewReader(out)}
	n.Cleanup(p.stop)
	return p
}

// stop ends the process. It may be called again.
func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if p.listened != nil {
		<-p.listened
	}
	_ = p.cmd.Wait()
}

// listen keeps what an agent says until it ends.
func (p *process) listen() {
	p.listened = make(chan struct{})
	go func() {
		defer close(p.listened)
		for {
			line, err := p.out.ReadString('\n')
			p.mu.Lock()
			p.said.WriteString(line)
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// hasSaid says whether an agent that is ready has said something since.
func (p *process) hasSaid(what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.said.String(), what)
}

func (p *process) mustLine() string {
	p.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.Fatalf("read what the process says: %v", err)
	}
	return strings.TrimSpace(line)
}

// mustAsk asks a client how its connection is.
func (p *process) mustAsk() string {
	p.Helper()
	if _, err := fmt.Fprintln(p.in); err != nil {
		p.Fatal(err)
	}
	return p.mustLine()
}

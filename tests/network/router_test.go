package network

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// computer is a host with a root of its own: files and programs are where docs/edge.md has them.
type computer struct {
	*host
	cgroup *traffic.Cgroup
	pid    int // of what holds its namespaces
}

// itself makes directories of a computer its own, whatever the machine of the tests has there, and then
// holds them. $1 is its name, $2 the directory that all have at /etc/headgate, $3 is headgate.
const itself = `set -e
hostname "$1"
mount -t tmpfs none /run
mkdir -p /run/bird /run/etc
cp -a /etc/. /run/etc
mkdir -p /run/etc/bird /run/etc/headgate
mount --bind /run/etc /etc
mount --bind "$2" /etc/headgate
for dir in /var/lib /usr/local/sbin; do mount -t tmpfs none $dir; done
ln -s "$3" /usr/local/sbin/headgate
mount -t bpf bpf /sys/fs/bpf
umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
echo made
exec sleep infinity`

func newComputer(h *host, shared string) *computer {
	h.tb.Helper()
	cgroup, err := traffic.NewCgroup(testenv.Cgroup(h.tb), h.Name())
	if err != nil {
		h.tb.Fatal(err)
	}
	h.tb.Cleanup(func() {
		if err := cgroup.Close(); err != nil {
			h.tb.Error(err)
		}
	})
	program, err := os.Executable()
	if err != nil {
		h.tb.Fatal(err)
	}
	c := &computer{host: h, cgroup: cgroup}
	holds := exec.Command("unshare", "--mount", "--uts", "--cgroup", "sh", "-c", itself, "sh", filepath.Base(h.Path()), shared, program)
	said, err := holds.StdoutPipe()
	if err != nil {
		h.tb.Fatal(err)
	}
	holds.Stderr = os.Stderr
	c.start(holds)
	c.pid = holds.Process.Pid
	if n, err := said.Read(make([]byte, 16)); n == 0 {
		h.tb.Fatalf("%s does not come up: %v", h.Name(), err)
	}
	return c
}

// start starts what ends at the latest with the test.
func (c *computer) start(cmd *exec.Cmd) {
	c.tb.Helper()
	c.cgroup.Adopt(cmd)
	if err := c.Start(cmd); err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// command is lines of a shell on a computer.
func (c *computer) command(lines string) *exec.Cmd {
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(c.pid), "--net", "--mount", "--uts", "--cgroup",
		"env", "--unset=STATE_DIRECTORY", "sh", "-ec", lines)
	cmd.Env = append(os.Environ(), asHeadgate+"=1")
	return cmd
}

// run runs lines of a shell, and returns what they print.
func (c *computer) run(lines string) (string, error) {
	said, err := c.command(lines).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w\n%s", c.Name(), lines, err, said)
	}
	return string(said), nil
}

// mustRun is run, of what has to succeed.
func (c *computer) mustRun(lines string) string {
	c.tb.Helper()
	said, err := c.run(lines)
	if err != nil {
		c.tb.Fatal(err)
	}
	return said
}

// runs starts a program that stays.
func (c *computer) runs(line string) *exec.Cmd {
	c.tb.Helper()
	cmd := c.command("exec " + line)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	c.start(cmd)
	return cmd
}

// write writes a file of a computer.
func (c *computer) write(path, text string, mode os.FileMode) {
	c.tb.Helper()
	path = filepath.Join("/proc", strconv.Itoa(c.pid), "root", path)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		c.tb.Fatal(err)
	}
}

// edgePage is docs/edge.md.
type edgePage struct {
	tb   testing.TB
	text string
}

func readEdgePage(tb testing.TB) edgePage {
	tb.Helper()
	text, err := os.ReadFile("../../docs/edge.md")
	if err != nil {
		tb.Fatal(err)
	}
	return edgePage{tb, string(text)}
}

// block returns the one block of the page that contains some words.
func (p edgePage) block(words string) string {
	p.tb.Helper()
	found := ""
	for i, part := range strings.Split(p.text, "```") {
		if i%2 == 0 || !strings.Contains(part, words) {
			continue
		}
		if found != "" {
			p.tb.Fatalf("two blocks of the page have %q", words)
		}
		_, found, _ = strings.Cut(part, "\n") // after the language
	}
	if found == "" {
		p.tb.Fatalf("no block of the page has %q", words)
	}
	return found
}

// replaced returns text with a word in place of another, which it has to have.
func (p edgePage) replaced(text, old, by string) string {
	p.tb.Helper()
	if !strings.Contains(text, old) {
		p.tb.Fatalf("no %q in:\n%s", old, text)
	}
	return strings.ReplaceAll(text, old, by)
}

// routed is edges that are set up as docs/edge.md says, with BIRD.
type routed struct {
	*edges
	page   edgePage
	edge   [2]*computer
	router *computer
	agents [2]*exec.Cmd
	birds  [2]*exec.Cmd
}

func newRouted(tb testing.TB) *routed {
	tb.Helper()
	r := &routed{edges: newEdges(tb), page: readEdgePage(tb)}
	r.at = netip.MustParseAddrPort("203.0.113.10:80")
	shared := tb.TempDir()
	if err := os.Mkdir(filepath.Join(shared, "services"), 0o755); err != nil {
		tb.Fatal(err)
	}
	for i, b := range r.backends {
		b.listen(fmt.Sprint("backend-", i+1), r.at.Port())
	}
	r.router = newComputer(r.edges.router, shared)
	r.router.write("/etc/bird/bird.conf", r.page.block("merge paths"), 0o644)
	r.router.runs("bird -f")
	for i := range r.edge {
		r.edge[i] = newComputer(r.nodes[i].host, shared)
	}
	r.edge[0].write("/etc/headgate/services/web.yaml", r.page.block("kind: EndpointSlice"), 0o644)
	key, _, _ := strings.Cut(r.page.block("headgate agent"), "headgate agent")
	r.edge[0].mustRun(key)
	for i := range r.edge {
		r.serve(i)
		r.startBIRD(i)
		r.edge[i].write("/usr/local/sbin/headgate-announce", r.page.block("#!/bin/sh"), 0o755)
		r.edge[i].runs("headgate-announce 2>/dev/null")
	}
	return r
}

// listen has a host answer connections to a port with its name.
func (h *host) listen(name string, port uint16) {
	h.tb.Helper()
	h.do(func() error {
		l, err := net.Listen("tcp4", fmt.Sprint(":", port))
		if err != nil {
			return err
		}
		h.tb.Cleanup(func() { l.Close() })
		go accept(l, name)
		return nil
	})
}

// serve starts the agent of an edge.
func (r *routed) serve(edge int) {
	r.tb.Helper()
	_, flags, _ := strings.Cut(r.page.block("headgate agent"), "headgate agent")
	r.agents[edge] = r.edge[edge].runs("headgate agent --log-level warn" + flags)
}

// startBIRD starts BIRD at an edge; the page has the file of the first.
func (r *routed) startBIRD(edge int) {
	r.tb.Helper()
	config := r.page.block("protocol static vips")
	if edge > 0 {
		config = r.page.replaced(config, "192.0.2.1;", "192.0.2.2;")
	}
	r.edge[edge].write("/etc/bird/bird.conf", config, 0o644)
	r.birds[edge] = r.edge[edge].runs("bird -f")
}

// awaitRoute waits until the router sends what is for the Service to these edges, and says how long that took.
func (r *routed) awaitRoute(edges ...int) time.Duration {
	r.tb.Helper()
	began := time.Now()
	eventually(r.tb, fmt.Sprint("the router sends to edges ", edges), func() error {
		said := r.router.mustRun("ip route show 203.0.113.10")
		for i, n := range r.nodes {
			wanted := false
			for _, e := range edges {
				wanted = wanted || e == i
			}
			if strings.Contains(said, "via "+n.addr.String()+" ") != wanted {
				return fmt.Errorf("the route is %q", said)
			}
		}
		return nil
	})
	return time.Since(began)
}

// kill ends a process at once.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(unix.SIGKILL)
	_ = cmd.Wait()
}

// What docs/edge.md tells an administrator to write and to run is what happens here, with BIRD at
// edges and router.
func TestEdgesAsThePageSays(t *testing.T) {
	testenv.Need(t)
	if os.Getenv("HEADGATE_BIRD") == "" {
		t.Skip("takes half a minute, and bird2: HEADGATE_BIRD=1")
	}
	const connections = 60
	r := newRouted(t)
	t.Log("both edges serve and are announced after", r.awaitRoute(0, 1))
	for _, e := range []struct {
		what    string
		happens func()
	}{
		{"an agent is killed", func() { kill(r.agents[0]); t.Log("withdrawn after", r.awaitRoute(1)) }},
		{"it comes again", func() { r.serve(0); t.Log("announced after", r.awaitRoute(0, 1)) }},
		{"BIRD of an edge is killed", func() { kill(r.birds[1]); t.Log("withdrawn after", r.awaitRoute(0)) }},
		{"BIRD comes again", func() { r.startBIRD(1); t.Log("announced after", r.awaitRoute(0, 1)) }},
		{"an edge is cut off", func() {
			r.nodes[1].setUp("eth0", false)
			t.Log("withdrawn after", r.awaitRoute(0))
			time.Sleep(4 * time.Second) // its probes of both backends fail as often as it takes
		}},
		{"it is back", func() {
			r.nodes[1].setUp("eth0", true)
			r.nodes[1].route("0.0.0.0/0", "192.0.2.254")
			t.Log("announced after", r.awaitRoute(0, 1))
		}},
	} {
		r.while(connections, e.happens).wantNoneLost(t, e.what)
	}
}

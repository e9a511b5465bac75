package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// place is where a script runs and, once the script asks for it, a machine outside.
type place struct {
	t       *testing.T
	machine *traffic.Namespace
}

// outside DEVICE makes the machine outside, and the device that leads there.
func (p *place) outside(_ *testscript.TestScript, _ bool, args []string) {
	p.machine = testenv.Outside(p.t, args[0])
}

// within says whether the first argument means outside, and returns the others.
func (p *place) within(ts *testscript.TestScript, args []string) (outside bool, rest []string) {
	if args[0] != "-outside" {
		return false, args
	}
	if p.machine == nil {
		ts.Fatalf("there is nothing outside yet")
	}
	return true, args[1:]
}

// pod [-outside] ADDRESS [PORT] gives a machine the address of a pod. At the port it tells
// whoever connects by which address it sees him; without one it refuses.
func (p *place) pod(ts *testscript.TestScript, _ bool, args []string) {
	outside, args := p.within(ts, args)
	do := func(f func() error) error { return f() }
	if outside {
		do = p.machine.Do
	}
	ts.Check(do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(args[0] + "/32")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
		ts.Defer(func() { ts.Check(do(func() error { return netlink.AddrDel(lo, addr) })) })
		if len(args) == 1 {
			return nil
		}
		l, err := net.Listen("tcp", net.JoinHostPort(args[0], args[1]))
		if err != nil {
			return err
		}
		ts.Defer(func() { ts.Check(l.Close()) })
		go greet(l)
		return nil
	}))
}

// podnet ADDRESS [process | outside] makes a pod that has a network namespace of its own, $POD, and an address in there. It may have a
// process: in the cgroup of the script, or outside of it and with a default route.
func podnet(ts *testscript.TestScript, _ bool, args []string) {
	made, err := filepath.Glob("/run/netns/" + traffic.RunName("hg-pod") + "*")
	ts.Check(err)
	pod, err := traffic.NewNamespace(fmt.Sprint(traffic.RunName("hg-pod"), "-", len(made)))
	ts.Check(err)
	ts.Defer(func() { ts.Check(pod.Close()) })
	ts.Setenv("POD", pod.Name())
	ts.Check(pod.Do(func() error {
		addr, err := netlink.ParseAddr(args[0] + "/32")
		if err != nil {
			return err
		}
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "peer"}
		return errors.Join(netlink.LinkAdd(link), netlink.AddrAdd(link, addr), netlink.LinkSetUp(link))
	}))
	if len(args) == 1 {
		return
	}
	within, err := os.Open(ts.Getenv("CGROUP"))
	if args[1] == "outside" {
		within, err = os.Open(filepath.Dir(ts.Getenv("CGROUP")))
		ts.Check(pod.Do(func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}})
		}))
	}
	ts.Check(err)
	defer within.Close()
	process := dialer(within, "sleep", "600")
	ts.Check(pod.Start(process))
	ts.Defer(func() {
		_ = process.Process.Kill()
		_ = process.Wait() // says only that it was killed
	})
}

// greet tells each client how it is seen.
func greet(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		seen, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		_, _ = io.WriteString(c, seen) // the client says if it comes to nothing
		_ = c.Close()
	}
}

// connect [-outside] ADDRESS:PORT [TIMES [PATIENCE [in-turn]]] makes connections, at once or in
// turn, and prints what becomes of them.
func (p *place) connect(ts *testscript.TestScript, _ bool, args []string) {
	outside, args := p.within(ts, args)
	args = append(args, []string{"1", "10s"}[min(len(args)-1, 2):]...)
	if outside {
		fmt.Fprint(ts.Stdout(), p.ask(ts, args))
		return
	}
	ts.Check(connectAll(ts.Stdout(), args))
}

// ask has a process outside connect.
func (p *place) ask(ts *testscript.TestScript, args []string) string {
	out, err := askOutside(p.machine, ts.Getenv("CGROUP"), args)
	ts.Check(err)
	return out.String()
}

// askOutside has a process connect that is neither in the network nor in the cgroup of the node.
func askOutside(machine *traffic.Namespace, cgroup string, args []string) (*bytes.Buffer, error) {
	out := &bytes.Buffer{}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0], cmd.Stdout, cmd.Stderr = clientProgram, out, out
	return out, errors.Join(startOutside(machine, cgroup, cmd), cmd.Wait())
}

// startOutside starts a process that is neither in the network nor in the cgroup of the node.
func startOutside(machine *traffic.Namespace, cgroup string, cmd *exec.Cmd) error {
	above, err := os.Open(filepath.Dir(cgroup))
	if err != nil {
		return err
	}
	defer above.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(above.Fd())}
	return machine.Start(cmd)
}

// clientProgram is the name of a process that connects.
const clientProgram = "client"

func client() {
	if err := connectAll(os.Stdout, os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// connectAll connects to an address so many times, each with so much patience: at once, or in turn,
// so that each knows what the ones before have found out.
func connectAll(out io.Writer, args []string) error {
	times, bad := strconv.Atoi(args[1])
	patience, worse := time.ParseDuration(args[2])
	if err := errors.Join(bad, worse); err != nil {
		return err
	}
	var mu sync.Mutex
	counts := map[string]int{}
	var all sync.WaitGroup
	if slices.Contains(args, "hold") {
		return holdAll(out, args[0], times, patience)
	}
	from := ""
	for _, arg := range args {
		if addr, is := strings.CutPrefix(arg, "from="); is {
			from = addr
		}
	}
	for i := range times {
		if slices.Contains(args, "in-turn") {
			all.Wait()
		}
		all.Go(func() {
			came := connectOnce(&net.Dialer{Timeout: patience, LocalAddr: clientAt(from, i)}, args[0])
			mu.Lock()
			defer mu.Unlock()
			counts[came]++
		})
	}
	all.Wait()
	for _, came := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "%d %s\n", counts[came], came)
	}
	return nil
}

// clientAt returns the end of a connection of a client: "", an address, or an address and the port of the first one.
func clientAt(from string, i int) net.Addr {
	if from == "" {
		return nil
	}
	if at, err := netip.ParseAddrPort(from); err == nil {
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(at.Addr(), at.Port()+uint16(i)))
	}
	return &net.TCPAddr{IP: net.ParseIP(from)}
}

// holdAll opens connections, says how many, and keeps them until its input ends.
func holdAll(out io.Writer, to string, times int, patience time.Duration) error {
	var all sync.WaitGroup
	held := make(chan net.Conn, times)
	for range times {
		all.Go(func() {
			if c, err := net.DialTimeout("tcp", to, patience); err == nil {
				held <- c
			}
		})
	}
	all.Wait()
	fmt.Fprintln(out, len(held))
	_, err := io.Copy(io.Discard, os.Stdin)
	for range len(held) {
		err = errors.Join(err, (<-held).Close())
	}
	return err
}

// connectOnce says what became of a connection.
func connectOnce(from *net.Dialer, to string) string {
	c, err := from.Dial("tcp", to)
	var late net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &late) && late.Timeout():
		return "no answer"
	case err != nil:
		return err.Error()
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err.Error()
	}
	seen, err := io.ReadAll(c)
	if _, bad := netip.ParseAddr(string(seen)); bad != nil {
		return fmt.Sprintf("answered with %q: %v", seen, err)
	}
	return "answered, seen as " + string(seen)
}

// eventually PATTERN COMMAND... runs a command until a line that it prints matches.
func eventually(ts *testscript.TestScript, _ bool, args []string) {
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no line matches %s", args[0])
		}
	}
}

// shows CODE COMMAND... runs a command, as exits does, whose output is on the page about
// symptoms: what differs from run to run is made equal.
func shows(ts *testscript.TestScript, neg bool, args []string) {
	exits(ts, neg, args)
	text := ts.ReadFile("stdout")
	for _, c := range changing {
		text = c.what.ReplaceAllString(text, c.by)
	}
	fmt.Fprint(ts.Stdout(), text)
}

// changing is what differs from run to run, and from machine to machine.
var changing = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`programmed in [\d.]+[mµ]?s`), "programmed in 1.9ms"},
	{regexp.MustCompile(`\b(for|change) [\dm.]+s`), "$1 8s"},
	{regexp.MustCompile(`since \d{4}-[\dT:-]+Z`), "since 2026-11-23T03:12:09Z"},
	{regexp.MustCompile(`pid \d+`), "pid 4711"},
	{regexp.MustCompile(`(this node  default/sticky:http/TCP  10.244).\d`), "$1.1"},
	{regexp.MustCompile(`cgroup /\S+:`), "cgroup /:"},
	{regexp.MustCompile(`(this one had 10\.244)\.\d`), "$1.1"},
	{regexp.MustCompile(`answered in [\d.]+ ms`), "answered in 0.2 ms"},
	{regexp.MustCompile(`(?m)^others .*cgroup.*\n`), ""}, // scripts have a cgroup of their own
	{regexp.MustCompile(`, but for a retry, which is due|, as a retry: the backend is avoided`), ""},
	// One of several backends, by chance: that on this node which is well.
	{regexp.MustCompile(`(?s)(50.0% +)(10\.244\.1\.[13]:8080/TCP)(.*this connect\(\) goes to )\S+`), "$1$2$3$2"},
	{regexp.MustCompile(`memory( +).*`), "memory$1… MiB in maps: …"},
}

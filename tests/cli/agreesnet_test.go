package cli

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

// Clients of random Services beside this node and the machine outside: that machine by another card, and a pod of this node.
const (
	cardIP = "198.51.100.9"
	podIP  = "10.244.1.9"
)

// ip runs commands of ip(8), here or in another network namespace.
func (n *explainedNode) ip(in *traffic.Namespace, lines ...string) {
	n.Helper()
	for _, line := range lines {
		run := func() error {
			out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
			if err != nil {
				n.Errorf("ip %s: %s", line, out)
			}
			return err
		}
		if in != nil {
			n.check(in.Do(run))
		} else {
			n.check(run())
		}
	}
}

// addCard makes another card, by which the machine outside has another address.
func (n *explainedNode) addCard() {
	n.ip(nil, "link add hg1 type veth peer name eth1 netns "+n.outside.Name(), "address add 198.51.100.1/24 dev hg1", "link set hg1 up")
	n.Cleanup(func() { n.ip(nil, "link del hg1") })
	n.check(os.WriteFile("/proc/sys/net/ipv4/conf/hg1/forwarding", []byte("1"), 0o600))
	n.ip(n.outside, "address add "+cardIP+"/24 dev eth1", "link set eth1 up", "route add default via 198.51.100.1 dev eth1 table 100", "rule add from "+cardIP+" lookup 100")
}

// addPod makes a pod of this node, which has a process.
func (n *explainedNode) addPod() {
	n.pod = testenv.Beside(n, "hg-client", "hgpod")
	n.ip(nil, "address add 10.244.1.8/32 dev hgpod", "link set hgpod up", "route add "+podIP+"/32 dev hgpod")
	n.check(os.WriteFile("/proc/sys/net/ipv4/conf/hgpod/forwarding", []byte("1"), 0o600))
	n.ip(n.pod, "address add "+podIP+"/32 dev eth0", "link set eth0 up", "route add 10.244.1.8/32 dev eth0", "route add default via 10.244.1.8 dev eth0")
	process := exec.Command("sleep", "600")
	n.check(n.startInPod(process))
	n.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait() // says only that it was killed
	})
}

// startInPod starts a process in the pod.
func (n *explainedNode) startInPod(process *exec.Cmd) error {
	cgroup, err := os.Open(testenv.Cgroup(n))
	if err != nil {
		return err
	}
	defer cgroup.Close()
	process.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd()), Pdeathsig: syscall.SIGKILL}
	return n.pod.Start(process)
}

// askPod has a process of the pod connect.
func (n *explainedNode) askPod(out *bytes.Buffer, args []string) error {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0], cmd.Stdout, cmd.Stderr = clientProgram, out, out
	if err := n.startInPod(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// drain takes a backend of this node out of use, whatever has no other.
func (n *explainedNode) drain(r *rand.Rand) {
	n.drained = randomHosts[r.IntN(2)].addr
	if out, err := n.command("drain", n.drained, "--force").CombinedOutput(); err != nil {
		n.Fatalf("drain %s: %v: %s", n.drained, err, out)
	}
}

// compareList says that the backends of a Service are told of, each once, with why it gets nothing.
func (n *explainedNode) compareList(said told, from string, hosts []randomHost) {
	n.Helper()
	if said.Service == "" {
		return
	}
	states := map[string]randomHost{}
	for _, h := range hosts {
		states[h.addr+":8080/TCP"] = h
	}
	for _, b := range said.Backends {
		h, is := states[b.Backend]
		if delete(states, b.Backend); !is {
			n.Errorf("%s is named, which is no backend, or twice", b.Backend)
		}
		if h.addr == n.drained {
			n.wantUnused("drained", b, "drained")
		} else if h.unready {
			n.wantUnused("unready", b, "not ready")
		}
		if b.NoRoute != h.unreached && from != podIP { // the pod has a way to all that this node says
			n.Errorf("%s has no route: said is %v", b.Backend, b.NoRoute)
		} else if h.unreached {
			n.seen["no route"]++
		}
	}
	if len(states) > 0 {
		n.Errorf("backends are not named: %v", states)
	}
	if strings.Contains(said.Remedy, "EndpointSlice") && strings.Contains(said.Remedy, " has port htpp/TCP, and none is named ") {
		n.seen["another port"]++
	}
}

func (n *explainedNode) wantUnused(what string, b toldBackend, why string) {
	n.Helper()
	if n.seen[what]++; !strings.Contains(b.Unused, why) {
		n.Errorf("%s is %s, said is %q", b.Backend, what, b.Unused)
	}
}

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

// failed is how many connections came to nothing.
func failed(got map[string]int) (count int) {
	for what, times := range got {
		if !isAddress(what) {
			count += times
		}
	}
	return count
}

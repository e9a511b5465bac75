package network

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/tests/testenv"
)

// asTwin makes this binary give addresses, between blanks, to the loopback device of its network namespace,
// until its input ends.
const asTwin = "HEADGATE_TEST_AS_TWIN"

func twinHere(addrs string) {
	if err := addToLoopback(strings.Fields(addrs)); err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test
}

func addToLoopback(addrs []string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, addr.BitLen()))}); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(lo)
}

// newTwin starts a process of an unprivileged user with a network namespace of its own, which has the addresses
// of a pod.
func (n *node) newTwin(t *testing.T, pod *host) {
	t.Helper()
	addrs := n.podAddrs(pod)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", asTwin, addrs[0], addrs[1]))
	cmd.Stderr = os.Stderr
	const nobody = 65534
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: nobody, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(cmd); err != nil {
		testenv.Lacks(t, "user namespaces", err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // it has said what there is to say
	})
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "ready\n" {
		t.Fatalf("the twin says %q, %v", said, err)
	}
}

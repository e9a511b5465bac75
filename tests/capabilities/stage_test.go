package capabilities_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/cli"
)

// The test binary runs itself again as other programs.
const (
	stageVar = "HEADGATE_TEST_STAGE"
	capsVar  = "HEADGATE_TEST_CAPABILITIES"
)

var stages = map[string]func() int{
	"confine": confine,
	"agent":   func() int { return cli.Run(os.Args[1:], "test", os.Stdout, os.Stderr) },
	"client":  client,
}

// numbers of capabilities, of linux/capability.h.
var numbers = map[string]uintptr{
	"NET_ADMIN":  unix.CAP_NET_ADMIN,
	"SYS_PTRACE": unix.CAP_SYS_PTRACE,
	"SYS_ADMIN":  unix.CAP_SYS_ADMIN,
	"PERFMON":    unix.CAP_PERFMON,
	"BPF":        unix.CAP_BPF,
}

// confine becomes the agent, as a container runtime would start it: as root,
// whose capabilities are those of the bounding set alone.
func confine() int {
	keep := map[uintptr]bool{}
	for _, name := range strings.Split(os.Getenv(capsVar), ",") {
		keep[numbers[name]] = true
	}
	runtime.LockOSThread()
	for number := uintptr(0); number <= unix.CAP_LAST_CAP; number++ {
		if keep[number] {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) { // of a newer kernel
			return fail("drop capability %d: %v", number, err)
		}
	}
	if err := os.Setenv(stageVar, "agent"); err != nil {
		return fail("set the next stage: %v", err)
	}
	return fail("become the agent: %v", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// client is a pod of another network namespace, with all of root's
// capabilities: it serves its own backends, connects to the Service, says so,
// and on each line of input whether the connection stands.
func client() int {
	if err := serve(); err != nil {
		return fail("serve: %v", err)
	}
	c, err := net.Dial("tcp", service)
	if err != nil {
		return fail("connect: %v", err)
	}
	fmt.Println("connected")
	for {
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			return 0
		}
		if err := c.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			return fail("wait: %v", err)
		}
		_, err := c.Read(make([]byte, 1))
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			fmt.Println("stands")
		case errors.Is(err, syscall.ECONNABORTED):
			fmt.Println("aborted")
		default:
			fmt.Println(err)
		}
	}
}

// serve makes the backends of examples/ addresses of this network namespace,
// and accepts connections there.
func serve() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, address := range backends {
		a, err := netlink.ParseAddr(address + "/32")
		if err != nil {
			return err
		}
		if err := netlink.AddrReplace(lo, a); err != nil {
			return err
		}
		l, err := net.Listen("tcp", address+":8080")
		if err != nil {
			return err
		}
		go accept(l)
	}
	return nil
}

// accept keeps connections open until the other side closes them.
func accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(io.Discard, c); c.Close() }()
	}
}

func fail(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	return 1
}

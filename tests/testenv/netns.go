package testenv

import (
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// EnterNetns moves the goroutine of a test to a new network namespace, with
// its loopback device up, until the test ends. Sockets that others have made
// stay where they are.
func EnterNetns(tb testing.TB) {
	tb.Helper()
	Need(tb)
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		tb.Fatalf("open this network namespace: %v", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		tb.Fatalf("make a network namespace: %v", err)
	}
	// Cleanups run on the goroutine of the test, this one after those that
	// come later.
	tb.Cleanup(func() {
		defer unix.Close(home)
		if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
			tb.Errorf("go back to the network namespace: %v", err)
			return // the thread must not come to another goroutine
		}
		runtime.UnlockOSThread()
	})
	LoopbackUp(tb)
}

// LoopbackUp brings the loopback device of the namespace of this thread up.
func LoopbackUp(tb testing.TB) {
	tb.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		tb.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		tb.Fatalf("set lo up: %v", err)
	}
}

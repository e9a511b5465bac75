package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic/serve"
)

// nobody is a user without any rights.
const nobody = 65534

// target is the variable that tells a role where to connect to.
const target = "HEADGATE_TEST_TARGET"

// targetOf reads it.
func targetOf() (netip.AddrPort, error) { return netip.ParseAddrPort(os.Getenv(target)) }

// connectBound is a role: until it is killed it connects by the loopback device, where
// no SYN is ever answered, as a user without rights.
func connectBound() error {
	to, err := targetOf()
	if err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
		return err
	}
	for {
		var open []int
		for range 250 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			open = append(open, fd)
			if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo"); err != nil {
				return err
			}
			_ = unix.Connect(fd, sockaddr(to)) // in progress, and so it stays
		}
		time.Sleep(1500 * time.Millisecond) // the kernel sends the SYN again after a second
		for _, fd := range open {
			_ = unix.Close(fd)
		}
	}
}

// connectRefused is a role in a network namespace of its own: it has the addresses of
// the backends, where nothing listens, and connects until it is killed.
func connectRefused() error {
	to, err := targetOf()
	if err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, addr := range []netip.Addr{web1Addr, web2Addr} {
		a, err := netlink.ParseAddr(addr.String() + "/32")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, a); err != nil {
			return err
		}
	}
	for {
		fd, err := dial(unix.SOCK_STREAM, to, time.Second)
		if err == nil {
			return errors.New("connected, where nothing listens")
		}
		_ = unix.Close(fd)
		time.Sleep(5 * time.Millisecond)
	}
}

// connectOnce is a role: it sends one HTTP request and prints what it is told.
func connectOnce() error {
	to, err := targetOf()
	if err != nil {
		return err
	}
	fd, err := dial(unix.SOCK_STREAM, to, 5*time.Second)
	if err != nil {
		return err
	}
	server := os.NewFile(uintptr(fd), "socket")
	if _, err := io.WriteString(server, "GET / HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	said, err := io.ReadAll(server)
	fmt.Print(string(said))
	return err
}

// inPod runs a role in the tenant's pod until the context ends. With a namespace of
// its own it is root there, as any user may be, and has no way out.
func (s *stage) inPod(ctx context.Context, name string, to netip.AddrPort, ownNamespace bool) {
	s.tb.Helper()
	cmd := role(name, target+"="+to.String())
	if ownNamespace {
		ids := []syscall.SysProcIDMap{{HostID: nobody, Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{NoSetGroups: true}}
	}
	s.cgroup.Adopt(cmd)
	if err := s.topology.Namespace("tenant").Start(cmd); err != nil {
		s.tb.Fatal(err)
	}
	<-ctx.Done()
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); !strings.Contains(err.Error(), "killed") {
		s.tb.Errorf("the attacker ended by itself: %v", err)
	}
}

func boundToLoopback(ctx context.Context, s *stage, _ *row) {
	s.inPod(ctx, "bound", clusterIP, false)
}

func refusedByOneself(ctx context.Context, s *stage, _ *row) {
	s.inPod(ctx, "refused", clusterIP, true)
}

// refusedByMany does so from eight namespaces, each a client of its own.
func refusedByMany(ctx context.Context, s *stage, _ *row) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { s.inPod(ctx, "refused", clusterIP, true) })
	}
	all.Wait()
}

// ownNodePort has a pod connect to its own server, at the number of a NodePort.
func ownNodePort(ctx context.Context, s *stage, got *row) {
	server := s.serve("tenant", "itself", netip.IPv4Unspecified(), nodePort.Port())
	defer server.Close()
	for ctx.Err() == nil {
		cmd := role("connect", target+"="+netip.AddrPortFrom(netip.IPv4Unspecified(), nodePort.Port()).String())
		s.cgroup.Adopt(cmd)
		var said strings.Builder
		cmd.Stdout = &said
		if err := s.topology.Namespace("tenant").Start(cmd); err != nil {
			s.tb.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), serve.BackendHeader+": itself\r\n") {
			got.gain("a pod that connects to itself at 0.0.0.0 comes to %q, %v", said.String(), err)
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// pause sleeps, or less if the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

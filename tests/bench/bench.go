package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/tests/testenv"
)

// bench is what the sections share.
type bench struct {
	ctx context.Context
	options
	report *report
	cgroup string
	bpffs  string
	name   string    // of the section
	began  time.Time // of the section

	groups  map[string]*group
	entered *group
	// Servers are open until the process ends.
	servers   map[int]int            // UDP sockets by family
	listeners map[int]map[uint16]int // TCP sockets by family and port
	onTTY     bool
	uplinks   int // devices that were made for flows to other nodes
}

func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{ctx: ctx, options: o, groups: map[string]*group{}, servers: map[int]int{}, listeners: map[int]map[uint16]int{}, report: newReport(o)}
	b.cgroup, b.bpffs = testenv.Dirs()
	if b.bpffs == "" {
		return nil, errors.New("not in a machine of its own")
	}
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err == nil {
		b.onTTY = true
	}
	return b, setUpNetwork()
}

// setUpNetwork makes every address of the generated networks local, so that
// connect() takes the same way to a Service and to a backend.
func setUpNetwork() error {
	for path, value := range map[string]string{
		"ipv6/conf/all/disable_ipv6": "0", "ipv6/conf/default/disable_ipv6": "0", "ipv6/conf/lo/disable_ipv6": "0",
		// Otherwise the kernel notes something of every TCP peer, and is the
		// slower the more peers there are.
		"ipv4/tcp_no_metrics_save": "1",
		// A connection that both ends have closed keeps no port.
		"ipv4/tcp_max_tw_buckets": "0",
	} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0o644); err != nil {
			return err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, n := range []struct {
		source netip.Addr
		dst    string
		bits   int
	}{{sourceAddr4, "10.0.0.0/8", 32}, {sourceAddr6, "fd00::/16", 128}} {
		ip := net.IP(n.source.AsSlice())
		a := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(n.bits, n.bits)}, Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrReplace(lo, a); err != nil {
			return fmt.Errorf("add address %s: %w", n.source, err)
		}
		if err := localRoute(n.dst, ip); err != nil {
			return err
		}
	}
	return nil
}

// localRoute makes all addresses of a prefix local to the network namespace that the thread is in; a
// nil source is the address itself.
func localRoute(prefix string, source net.IP) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		return err
	}
	err = netlink.RouteReplace(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Dst: dst, Src: source, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
	})
	if err != nil {
		return fmt.Errorf("add route to %s: %w", prefix, err)
	}
	return nil
}

// close takes everything out of force again.
func (b *bench) close() error {
	errs := []error{b.leave()}
	for _, g := range b.groups {
		errs = append(errs, g.close())
	}
	return errors.Join(errs...)
}

// progress says what goes on; an empty text ends the line.
func (b *bench) progress(text string) {
	took := time.Since(b.began).Round(100 * time.Millisecond)
	switch {
	case b.onTTY && text == "":
		fmt.Fprintf(os.Stderr, "\r\033[K%s: done in %s\n", b.name, took)
	case b.onTTY:
		fmt.Fprintf(os.Stderr, "\r\033[K%s: %s", b.name, text)
	case text == "":
		fmt.Fprintf(os.Stderr, "%s: done in %s\n", b.name, took)
	}
}

// step is progress that also stands where there is no terminal, and the topology
// where an interrupt is heard.
func (b *bench) step(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	b.progress(text)
	if !b.onTTY {
		fmt.Fprintf(os.Stderr, "%s: %s\n", b.name, text)
	}
	return b.ctx.Err()
}

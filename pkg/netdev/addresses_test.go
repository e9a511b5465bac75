package netdev_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// mustAddDevice makes a device without addresses, until the test ends.
func mustAddDevice(tb testing.TB, name string) netlink.Link {
	tb.Helper()
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: name}}
	err := netlink.LinkAdd(link)
	if errors.Is(err, unix.EOPNOTSUPP) { // a kernel without dummy devices
		err = netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
	}
	if err != nil {
		tb.Fatalf("add device %s: %v", name, err)
	}
	added, err := netlink.LinkByName(name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = netlink.LinkDel(added) }) // the test may have done it
	if err := netlink.LinkSetUp(added); err != nil {
		tb.Fatalf("set device %s up: %v", name, err)
	}
	return added
}

func mustAddress(tb testing.TB, what func(netlink.Link, *netlink.Addr) error, link netlink.Link, address string) {
	tb.Helper()
	a, err := netlink.ParseAddr(address)
	if err != nil {
		tb.Fatal(err)
	}
	if a.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := what(link, a); err != nil {
		tb.Fatalf("change address %s of %s: %v", address, link.Attrs().Name, err)
	}
}

func set(addresses ...string) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, a := range addresses {
		out[netip.MustParseAddr(a)] = true
	}
	return out
}

// told waits until it is told of just these addresses.
func told(tb testing.TB, tell <-chan map[netip.Addr]bool, want map[netip.Addr]bool) {
	tb.Helper()
	timeout := time.After(patience)
	last := map[netip.Addr]bool{}
	for {
		select {
		case last = <-tell:
			if cmp.Equal(want, last) {
				return
			}
		case <-timeout:
			tb.Fatalf("not told (-want +told last):\n%s", cmp.Diff(names(want), names(last)))
		}
	}
}

func names(addresses map[netip.Addr]bool) map[string]bool {
	out := map[string]bool{}
	for a := range addresses {
		out[a.String()] = true
	}
	return out
}

func TestAddressesAreToldAsTheyComeAndGo(t *testing.T) {
	testenv.Need(t)
	eth := mustAddDevice(t, "eth-test")
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	tell := make(chan map[netip.Addr]bool, 100)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- netdev.WatchAddresses(ctx, func(a map[netip.Addr]bool) { tell <- a })
	}()

	// lo has 127.0.0.1 and ::1, and the device a link-local address by now.
	told(t, tell, set())
	mustAddress(t, netlink.AddrAdd, eth, "192.0.2.1/24")
	told(t, tell, set("192.0.2.1"))
	mustAddress(t, netlink.AddrAdd, eth, "2001:db8::1/64")
	told(t, tell, set("192.0.2.1", "2001:db8::1"))

	// An address of a service that is announced by routing often stands on lo.
	mustAddress(t, netlink.AddrAdd, lo, "192.0.2.10/32")
	told(t, tell, set("192.0.2.1", "2001:db8::1", "192.0.2.10"))

	// These are told of only with what comes after them, if at all.
	mustAddress(t, netlink.AddrAdd, lo, "127.0.0.2/32")
	mustAddress(t, netlink.AddrAdd, eth, "169.254.7.7/16")
	mustAddress(t, netlink.AddrAdd, eth, "fe80::7/64")
	mustAddress(t, netlink.AddrDel, lo, "192.0.2.10/32")
	told(t, tell, set("192.0.2.1", "2001:db8::1"))

	if err := netlink.LinkDel(eth); err != nil {
		t.Fatal(err)
	}
	told(t, tell, set())
	mustAddress(t, netlink.AddrDel, lo, "127.0.0.2/32")

	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("does not end with its context")
	}
}

// What others find in the map that they were told is theirs to change.
func TestWhatWasToldIsTheListenersOwn(t *testing.T) {
	testenv.Need(t)
	eth := mustAddDevice(t, "eth-test")
	mustAddress(t, netlink.AddrAdd, eth, "192.0.2.1/24")
	tell := make(chan map[netip.Addr]bool, 100)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_ = netdev.WatchAddresses(ctx, func(a map[netip.Addr]bool) {
			tell <- set(keys(a)...)
			clear(a)
		})
	}()
	told(t, tell, set("192.0.2.1"))
	mustAddress(t, netlink.AddrAdd, eth, "127.7.7.7/32") // nothing to tell
	time.Sleep(100 * time.Millisecond)                   // so that it is not taken together with the next
	mustAddress(t, netlink.AddrAdd, eth, "192.0.2.2/24")
	select {
	case got := <-tell:
		if diff := cmp.Diff(names(set("192.0.2.1", "192.0.2.2")), names(got)); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	case <-time.After(patience):
		t.Error("not told")
	}
}

func keys(addresses map[netip.Addr]bool) (out []string) {
	for a := range addresses {
		out = append(out, a.String())
	}
	return out
}

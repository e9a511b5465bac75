package datapath_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/datapath"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/tests/testenv"
)

// filters returns the programs of ours that are on devices by filters.
func filters(tb testing.TB) (names []string, programs []uint32) {
	tb.Helper()
	list, err := netdev.Filters()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range list {
		names, programs = append(names, f.Name), append(programs, f.Program)
	}
	slices.Sort(names)
	return names, programs
}

// foreign adds a filter of somebody else to a device, until the test ends, and
// returns how many there are.
func foreign(tb testing.TB, d *netlink.Veth) func() int {
	tb.Helper()
	f := &netlink.MatchAll{FilterAttrs: netlink.FilterAttrs{LinkIndex: d.Index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 71, Handle: 0x4847, Protocol: unix.ETH_P_IP},
		Actions: []netlink.Action{&netlink.GenericAction{ActionAttrs: netlink.ActionAttrs{Action: netlink.TC_ACT_OK}}}}
	if err := netlink.FilterAdd(f); errors.Is(err, unix.ENOENT) {
		return nil // a kernel without this kind
	} else if err != nil {
		tb.Fatal(err)
	}
	return func() int {
		list, err := netlink.FilterList(d, netlink.HANDLE_MIN_INGRESS)
		if err != nil {
			tb.Fatal(err)
		}
		return len(list)
	}
}

func TestWithoutTCXProgramsAreFilters(t *testing.T) {
	testenv.Need(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hg-f0"}, PeerName: "hg-f1"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	dev := plan.Device{Index: uint32(veth.Index), Name: "hg-f0"}

	cfg := config(t)
	cfg.Filters = true
	d := mustOpen(t, cfg)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	wantFilters := func(what string, want ...string) []uint32 {
		t.Helper()
		names, programs := filters(t)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("filters %s (-want +got):\n%s", what, diff)
		}
		return programs
	}
	set := func(devices ...plan.Device) {
		t.Helper()
		if err := d.SetDevices(devices); err != nil {
			t.Fatal(err)
		}
	}
	set(dev)
	first := wantFilters("of a device", "device_in", "device_out")
	if links := deviceLinks(t, cfg); len(links) > 0 {
		t.Errorf("links in place of filters: %v", links)
	}
	others := foreign(t, veth)
	set(dev)
	if again := wantFilters("of the same device", "device_in", "device_out"); !slices.Equal(first, again) {
		t.Errorf("programs %v became %v for nothing", first, again)
	}
	if err := d.Reserve(plan.Sizes{Backends: 5000}); err != nil {
		t.Fatal(err)
	}
	if grown := wantFilters("after growth", "device_in", "device_out"); slices.Equal(first, grown) {
		t.Errorf("programs are still %v", first)
	}
	dev.Pod = true
	set(dev)
	wantFilters("of a pod", "pod_in", "pod_out")
	set()
	wantFilters("of no device")
	set(dev)
	d.Close()
	if err := datapath.Cleanup(cfg.Root); err != nil {
		t.Fatal(err)
	}
	wantFilters("after cleanup")
	if others != nil && others() != 1 {
		t.Errorf("%d filters of others, want 1", others())
	}
}

// Where the kernel has both, one takes the place of the other.
func TestFiltersGiveWayToLinks(t *testing.T) {
	testenv.Need(t)
	needTCX(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hg-f0"}, PeerName: "hg-f1"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	dev := []plan.Device{{Index: uint32(veth.Index), Name: "hg-f0"}}
	cfg := config(t)
	for i, byFilter := range []bool{true, false, true} {
		cfg.Filters = byFilter
		d := mustOpen(t, cfg)
		if err := errors.Join(d.Attach(), d.SetDevices(dev)); err != nil {
			t.Fatal(err)
		}
		names, _ := filters(t)
		links := deviceLinks(t, cfg)
		d.Close()
		if byFilter && (len(names) != 2 || len(links) != 0) || !byFilter && (len(names) != 0 || len(links) != 2) {
			t.Errorf("agent %d, filters %v: there are filters %v and links %v", i, byFilter, names, links)
		}
	}
}

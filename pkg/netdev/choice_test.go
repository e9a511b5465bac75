package netdev_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// watchDevices follows devices, and returns what waits until they are just these, by name, and
// these lead to backends without being chosen.
func watchDevices(t *testing.T, patterns netdev.Patterns, before []int, cluster *netdev.Cluster) (want func(what string, devices, bare []string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan netdev.Seen, 100), make(chan error, 1)
	go func() {
		ended <- netdev.WatchDevices(ctx, patterns, before, cluster, nil, func(s netdev.Seen) { seen <- s }, func(string, error) {})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	devices, bare := []string{}, []string{}
	take := func(s netdev.Seen) {
		devices, bare = []string{}, []string{}
		for _, d := range s.Devices[1:] {
			devices = append(devices, d.Name)
		}
		for _, b := range s.Unchosen {
			bare = append(bare, b.Device+" "+b.Backend.String())
		}
	}
	return func(what string, wantDevices, wantBare []string) {
		t.Helper()
		for len(seen) > 0 {
			take(<-seen)
		}
		timeout := time.After(patience)
		for !cmp.Equal(wantDevices, devices) || !cmp.Equal(wantBare, bare) {
			select {
			case s := <-seen:
				take(s)
			case <-timeout:
				t.Fatalf("%s (-want +got):\n%s%s", what, cmp.Diff(wantDevices, devices), cmp.Diff(wantBare, bare))
			}
		}
	}
}

// mustRouteIn adds a route to a prefix by a device, with a gateway or without one (""), to a table.
func mustRouteIn(t *testing.T, link netlink.Link, table int, prefix, gateway string) *netlink.Route {
	t.Helper()
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		t.Fatal(err)
	}
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Table: table, Dst: dst, Gw: net.ParseIP(gateway)}
	if gateway == "" {
		r.Scope = netlink.SCOPE_LINK
	}
	if err := netlink.RouteAdd(r); err != nil {
		t.Fatalf("route to %s: %v", prefix, err)
	}
	return r
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, a := range texts {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestADeviceIsChosenForWhatItLeadsTo(t *testing.T) {
	testenv.Need(t)
	const table = 100
	byRule := mustAddDevice(t, "by-rule")
	mustAddress(t, netlink.AddrAdd, byRule, "192.0.2.1/24")
	inVRF := mustAddDevice(t, "in-vrf")
	ofNode := mustAddDevice(t, "of-node")
	mustAddress(t, netlink.AddrAdd, ofNode, "198.51.100.1/24")
	toPods := mustAddDevice(t, "to-pods")
	mustAddDevice(t, "nothing")
	cluster := netdev.NewCluster()
	want := watchDevices(t, netdev.Patterns{}, nil, cluster)
	want("at first", []string{}, []string{})

	mustRouteIn(t, byRule, table, "203.0.113.0/24", "192.0.2.254")
	want("a gateway in another table", []string{"by-rule"}, []string{})

	vrf := &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "vrf-test"}, Table: table + 1}
	chosen := []string{"by-rule"}
	if err := netlink.LinkAdd(vrf); errors.Is(err, unix.EOPNOTSUPP) {
		t.Log("the kernel has no VRF: not tried")
	} else if err != nil {
		t.Fatal(err)
	} else {
		defer func() { _ = netlink.LinkDel(vrf) }()
		if err := errors.Join(netlink.LinkSetUp(vrf), netlink.LinkSetMaster(inVRF, vrf)); err != nil {
			t.Fatal(err)
		}
		mustAddress(t, netlink.AddrAdd, inVRF, "192.0.2.65/26")
		mustRouteIn(t, inVRF, table+1, "0.0.0.0/0", "192.0.2.66")
		chosen = append(chosen, "in-vrf")
		want("a default route in a VRF", chosen, []string{})
	}

	cluster.SetNode(addrs("198.51.100.1", "2001:db8::1"))
	chosen = append(chosen, "of-node")
	want("an address of the Node", chosen, []string{})

	mustAddress(t, netlink.AddrAdd, toPods, "10.9.0.1/24")
	cluster.SetBackends(netdev.Backends{Elsewhere: addrs("10.8.0.7", "10.9.0.7")}) // of the first no route is known
	chosen = append(chosen, "to-pods")
	want("a backend on another node", chosen, []string{})
}

func TestADeviceOfAPodIsNotChosenForABackend(t *testing.T) {
	testenv.Need(t)
	cluster := netdev.NewCluster()
	want := watchDevices(t, netdev.Patterns{}, nil, cluster)
	want("at first", []string{}, []string{})
	pod := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "pod-test"}, PeerName: "pod-peer"}
	if err := netlink.LinkAdd(pod); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netlink.LinkDel(pod) }()
	if err := netlink.LinkSetUp(pod); err != nil {
		t.Fatal(err)
	}
	mustRouteIn(t, pod, unix.RT_TABLE_MAIN, "10.7.0.7/32", "")
	cluster.SetBackends(netdev.Backends{Elsewhere: addrs("10.7.0.7")})
	time.Sleep(2 * time.Second) // longer than until the routes are asked for again
	want("a pod of this node that an EndpointSlice has elsewhere", []string{}, []string{})
}

func TestAPortOfABridgeIsNotChosen(t *testing.T) {
	testenv.Need(t)
	want := watchDevices(t, netdev.Patterns{}, nil, netdev.NewCluster())
	want("at first", []string{}, []string{})
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br-test"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netlink.LinkDel(bridge) }()
	port := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port"}, PeerName: "peer"}
	if err := netlink.LinkAdd(port); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netlink.LinkDel(port) }()
	if err := errors.Join(netlink.LinkSetUp(port), netlink.LinkSetUp(bridge)); err != nil {
		t.Fatal(err)
	}
	mustAddress(t, netlink.AddrAdd, port, "192.0.2.129/26")
	mustRouteIn(t, port, unix.RT_TABLE_MAIN, "203.0.113.64/26", "192.0.2.130")
	want("a gateway", []string{"port"}, []string{})
	if err := netlink.LinkSetMaster(port, bridge); err != nil {
		t.Fatal(err)
	}
	want("a port of a bridge", []string{}, []string{})
}

func TestAChosenDeviceStaysAsLongAsItIsThere(t *testing.T) {
	testenv.Need(t)
	up := mustAddDevice(t, "up")
	mustAddress(t, netlink.AddrAdd, up, "192.0.2.1/24")
	mustAddDevice(t, "other")
	cluster := netdev.NewCluster()
	want := watchDevices(t, netdev.Patterns{}, nil, cluster)
	want("at first", []string{}, []string{})
	route := mustRouteIn(t, up, unix.RT_TABLE_MAIN, "0.0.0.0/0", "192.0.2.254")
	want("a default route", []string{"up"}, []string{})
	if err := netlink.RouteDel(route); err != nil {
		t.Fatal(err)
	}
	mustAddress(t, netlink.AddrDel, up, "192.0.2.1/24")
	later := mustAddDevice(t, "later")
	mustAddress(t, netlink.AddrAdd, later, "198.51.100.1/24")
	mustRouteIn(t, later, unix.RT_TABLE_MAIN, "0.0.0.0/0", "198.51.100.254")
	want("without route and address, beside another", []string{"up", "later"}, []string{})
	if err := netlink.LinkDel(up); err != nil {
		t.Fatal(err)
	}
	want("it goes", []string{"later"}, []string{})
}

func TestDevicesOfBeforeStayWhereNoneIsChosen(t *testing.T) {
	testenv.Need(t)
	was := mustAddDevice(t, "was")
	before := []int{was.Attrs().Index, 1 << 20} // one is gone
	want := watchDevices(t, netdev.Patterns{}, before, netdev.NewCluster())
	want("without a route", []string{"was"}, []string{})
	up := mustAddDevice(t, "up")
	mustAddress(t, netlink.AddrAdd, up, "192.0.2.1/24")
	mustRouteIn(t, up, unix.RT_TABLE_MAIN, "0.0.0.0/0", "192.0.2.254")
	want("beside a new one", []string{"was", "up"}, []string{})
	again := watchDevices(t, netdev.Patterns{}, before, netdev.NewCluster())
	again("where another is chosen at first", []string{"up"}, []string{})
	list, err := netdev.Devices(netdev.Patterns{}, before...)
	if err != nil || len(list) != 3 {
		t.Errorf("devices that are kept: %v, %v, want the node and two", list, err)
	}
}

func TestADeviceThatPatternsLeaveOutIsTold(t *testing.T) {
	testenv.Need(t)
	named := mustAddDevice(t, "named")
	mustAddress(t, netlink.AddrAdd, named, "192.0.2.1/24")
	mustRouteIn(t, named, unix.RT_TABLE_MAIN, "0.0.0.0/0", "192.0.2.254")
	bare := mustAddDevice(t, "bare")
	mustAddress(t, netlink.AddrAdd, bare, "10.9.0.1/24")
	cluster := netdev.NewCluster()
	cluster.SetBackends(netdev.Backends{Elsewhere: addrs("10.9.0.7", "203.0.113.7")})
	want := watchDevices(t, netdev.Patterns{Devices: []string{"named", "named-port"}}, nil, cluster)
	want("a backend by another device", []string{"named"}, []string{"bare 10.9.0.7"})
	above := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "above"}}
	if err := netlink.LinkAdd(above); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netlink.LinkDel(above) }()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "named-port"}, PeerName: "named-peer"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netlink.LinkDel(veth) }()
	if err := errors.Join(netlink.LinkSetUp(above), netlink.LinkSetMaster(veth, above)); err != nil {
		t.Fatal(err)
	}
	mustAddress(t, netlink.AddrAdd, above, "10.10.0.1/24")
	cluster.SetBackends(netdev.Backends{Elsewhere: addrs("10.10.0.7")})
	want("a backend behind a bridge whose port is named", []string{"named", "named-port"}, []string{})
	cluster.SetBackends(netdev.Backends{Elsewhere: addrs("203.0.113.7")})
	want("none", []string{"named", "named-port"}, []string{})
}

func TestADeviceIsSharedIfItLeadsToBackendsOnTheNode(t *testing.T) {
	testenv.Need(t)
	flat := mustAddDevice(t, "flat")
	mustAddress(t, netlink.AddrAdd, flat, "10.9.0.1/24")
	cluster := netdev.NewCluster()
	cluster.SetBackends(netdev.Backends{Here: addrs("10.9.0.5"), Elsewhere: addrs("10.9.0.1", "10.9.0.7")}) // one is the node's own
	shared := make(chan bool, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- netdev.WatchDevices(ctx, netdev.Patterns{}, nil, cluster, nil, func(s netdev.Seen) {
			shared <- len(s.Devices) == 2 && s.Devices[1].Shared
		}, func(string, error) {})
	}()
	if !<-shared {
		t.Error("it is not, beside a backend on another node")
	}
	cluster.SetBackends(netdev.Backends{Elsewhere: addrs("10.9.0.7")})
	if <-shared {
		t.Error("it is when the backend on the node is gone")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAFlowLeavesWithALastingAddress(t *testing.T) {
	testenv.Need(t)
	up := mustAddDevice(t, "up")
	// The kernel has a /32 before what is added later, and later addresses of a network are secondary.
	mustAddress(t, netlink.AddrAdd, up, "192.0.2.100/32")
	mustAddress(t, netlink.AddrAdd, up, "192.0.2.1/24")
	mustAddress(t, netlink.AddrAdd, up, "192.0.2.2/24")
	if got := found(t, "up")["up"]; got != "192.0.2.1 -" {
		t.Errorf("beside a virtual IP it leaves with %q", got)
	}
}

func TestADeviceLeavesPacketsOfItsVLANsToThem(t *testing.T) {
	testenv.Need(t)
	card := mustAddDevice(t, "card")
	mustAddress(t, netlink.AddrAdd, card, "192.0.2.1/24")
	mustRoute(t, card, "192.0.2.254", 1)
	vlan := func(name string, parent netlink.Link, id int) netlink.Link {
		t.Helper()
		l := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: parent.Attrs().Index}, VlanId: id, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
		err := netlink.LinkAdd(l)
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("the kernel has no VLAN devices (8021q)")
		}
		if err = errors.Join(err, netlink.LinkSetUp(l)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(l) }) // it may be gone with what is below it
		return l
	}
	want := func(what string, want ...string) {
		t.Helper()
		list, err := netdev.Devices(netdev.Patterns{})
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, d := range list[1:] {
			got = append(got, map[bool]string{true: d.Name + " with VLANs", false: d.Name}[d.Trunk])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	outer := vlan("outer", card, 10)
	want("a VLAN without an address", "card")
	inner := vlan("inner", outer, 20)
	mustAddress(t, netlink.AddrAdd, inner, "198.51.100.1/24")
	want("a VLAN within a VLAN", "card with VLANs", "inner")
	if err := netlink.LinkDel(inner); err != nil {
		t.Fatal(err)
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br-outer"}}
	if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetMaster(outer, bridge), netlink.LinkSetUp(bridge)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netlink.LinkDel(bridge) }()
	want("a bridge without an address", "card")
	mustAddress(t, netlink.AddrAdd, bridge, "203.0.113.1/24")
	want("a bridge of a VLAN", "card with VLANs", "br-outer")
}

package netdev_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

// candidate is a device of a node, and whether others reach the node by it.
type candidate struct {
	link    netlink.Link
	address string // "" for none
	below   string // the device that it is on
	bridge  string // whose port it is
	told    bool   // where eth0 and the other end of eth1 are chosen
	why     string
}

func named(name string) netlink.LinkAttrs { return netlink.LinkAttrs{Name: name} }

func veth(name string) netlink.Link {
	return &netlink.Veth{LinkAttrs: named(name), PeerName: "p-" + name}
}

func bridge(name string) netlink.Link { return &netlink.Bridge{LinkAttrs: named(name)} }

func macvlan(name string) netlink.Link {
	return &netlink.Macvlan{LinkAttrs: named(name), Mode: netlink.MACVLAN_MODE_BRIDGE}
}

func vlan(name string) netlink.Link {
	return &netlink.Vlan{LinkAttrs: named(name), VlanId: 7, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
}

// candidates are what nodes have, each after what it is on.
var candidates = []candidate{
	{link: veth("eth0"), address: "192.0.2.1/24", why: "is chosen"},
	{link: veth("eth1"), address: "198.51.100.1/24", told: true},
	{link: veth("eth2"), address: "2001:db8::1/64", told: true},
	{link: veth("down"), address: "198.51.100.65/26", why: "is not up"},
	{link: vlan("eth0.7"), below: "eth0", address: "203.0.113.1/26", why: "eth0 sees its packets"},
	{link: vlan("eth1.7"), below: "eth1", address: "203.0.113.65/32", told: true, why: "a VLAN leads to no pod, whatever its address"},
	{link: macvlan("macvlan0"), below: "eth0", address: "203.0.113.129/26", why: "eth0 sees its packets"},
	{link: macvlan("macvlan1"), below: "eth1", address: "203.0.113.193/26", told: true},
	{link: bridge("docker0"), address: "172.17.0.1/16", why: "leads to containers"},
	{link: bridge("cni0"), address: "10.244.1.1/24", why: "leads to pods"},
	{link: veth("port"), bridge: "cni0", address: "10.244.1.2/24", why: "its bridge has its packets"},
	{link: &netlink.Vxlan{LinkAttrs: named("flannel.1"), VxlanId: 1, Port: 8472}, address: "10.244.1.0/32", why: "is a tunnel"},
	{link: veth("cilium_host"), address: "10.244.1.3/32", why: "its address has no network"},
	{link: veth("gke1"), address: "fd00::1/128", why: "its address has no network"},
	{link: veth("cali1"), why: "has no address, and leads to a pod"},
	{link: veth("lxc1"), address: "fe80::1/64", why: "its address is link-local"},
	{link: &netlink.Dummy{LinkAttrs: named("kube-ipvs0")}, address: "10.96.0.1/24", why: "leads nowhere"},
}

// mustAdd adds a device, and says whether the kernel has its type.
func (c candidate) mustAdd(t *testing.T) bool {
	t.Helper()
	index := func(name string) int {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return l.Attrs().Index
	}
	a := c.link.Attrs()
	if c.below != "" {
		a.ParentIndex = index(c.below)
	}
	if c.bridge != "" {
		a.MasterIndex = index(c.bridge)
	}
	err := netlink.LinkAdd(c.link)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Logf("%s is not tried: the kernel has no %s", a.Name, c.link.Type())
		return false
	}
	if pair, is := c.link.(*netlink.Veth); is && err == nil {
		err = netlink.LinkSetUp(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index(pair.PeerName)}})
	}
	if a.Name != "down" {
		err = errors.Join(err, netlink.LinkSetUp(c.link))
	}
	if err != nil {
		t.Fatalf("add %s: %v", a.Name, err)
	}
	if c.address != "" {
		mustAddress(t, netlink.AddrAdd, c.link, c.address)
	}
	return true
}

func TestADeviceOnWhichOthersReachTheNodeIsToldUnlessItIsChosen(t *testing.T) {
	testenv.EnterNetns(t)
	want, got := map[string]string{}, map[string]string{}
	why := map[string]string{}
	for _, c := range candidates {
		if name := c.link.Attrs().Name; c.mustAdd(t) && c.told {
			want[name] = name + " " + c.address
		}
		why[c.link.Attrs().Name] = c.why
	}
	chosen := map[int]bool{}
	for _, name := range []string{"eth0", "p-eth0", "p-eth1"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		chosen[l.Attrs().Index] = true
	}
	list, err := netdev.NotChosen(chosen)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		name, _, _ := strings.Cut(d, " ")
		if got[name] = d; want[name] == "" {
			t.Errorf("%s is told, which %s", d, why[name])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

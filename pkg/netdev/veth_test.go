package netdev_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/tests/testenv"
)

func TestADeviceIsAVethIfItIsOneEndOfAPair(t *testing.T) {
	testenv.EnterNetns(t)
	links := []netlink.Link{
		&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "one"}, PeerName: "other"},
		&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge"}},
	}
	for _, l := range links {
		if err := netlink.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"lo": false, "one": true, "other": true, "bridge": false} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := netdev.IsVeth(uint32(l.Attrs().Index)); got != want {
			t.Errorf("%s is a veth: %v, want %v", name, got, want)
		}
	}
	if netdev.IsVeth(1 << 20) {
		t.Error("a device that there is not is a veth")
	}
}

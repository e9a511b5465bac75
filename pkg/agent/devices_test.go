package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/netdev"
	"github.com/headgate/headgate/pkg/plan"
)

func TestTheDevicesThatAreBalancedAreLoggedOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	l := newDeviceList(Config{}, zap.New(core), func([]plan.Device) {}, func([]lb.Problem) {})
	node, uplink, pod := netdev.Device{}, netdev.Device{Index: 2, Name: "eth0"}, netdev.Device{Index: 3, Name: "veth1", Pod: "default/web"}
	for _, list := range [][]netdev.Device{{node}, {node, pod}, {node, uplink}, {node, uplink, pod}, {node}} {
		l.setDevices(netdev.Seen{Devices: list})
	}
	var got []string
	for _, entry := range logs.All() {
		got = append(got, entry.Level.String()+" "+entry.Message[:9])
	}
	if diff := cmp.Diff([]string{"warn no device", "info balancing", "warn no device"}, got); diff != "" {
		t.Errorf("log lines (-want +got):\n%s", diff)
	}
}

func TestDevicesThatAreGoneOrLeftOutAreProblems(t *testing.T) {
	var got []lb.Problem
	l := newDeviceList(Config{NodeName: "a"}, zap.NewNop(), func([]plan.Device) {}, func(p []lb.Problem) { got = p })
	node, uplink := netdev.Device{}, netdev.Device{Index: 2, Name: "eth0"}
	want := func(what string, seen netdev.Seen, values ...string) {
		t.Helper()
		l.setDevices(seen)
		var said []string
		for _, p := range got {
			if p.Object != "Node a" || p.Field != "devices" || p.Reason == "" || p.Remedy == "" {
				t.Errorf("%s: %+v does not say what is wrong with what", what, p)
			}
			said = append(said, p.Value)
		}
		if diff := cmp.Diff(values, said); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("none yet", netdev.Seen{Devices: []netdev.Device{node}})
	want("one", netdev.Seen{Devices: []netdev.Device{node, uplink}})
	want("it goes", netdev.Seen{Devices: []netdev.Device{node}}, "eth0")
	unchosen := []netdev.Unchosen{{Device: "back0", Backend: netip.MustParseAddr("10.244.2.10")}}
	want("another is left out", netdev.Seen{Devices: []netdev.Device{node, uplink}, Unchosen: unchosen}, "back0")
	down, other := uplink, netdev.Device{Index: 3, Name: "eth1"}
	down.Down = true
	want("it is down, with a pod", netdev.Seen{Devices: []netdev.Device{node, down, {Index: 9, Pod: "p"}}}, "eth0")
	want("one of two is down", netdev.Seen{Devices: []netdev.Device{node, down, other}})
	other.Down = true
	want("both are down", netdev.Seen{Devices: []netdev.Device{node, down, other}}, "eth0, eth1")
	want("all is well", netdev.Seen{Devices: []netdev.Device{node, uplink}})
}

func TestSomeBackendsOfEachNetworkAreLookedFor(t *testing.T) {
	l := newDeviceList(Config{NodeName: "here"}, zap.NewNop(), func([]plan.Device) {}, func([]lb.Problem) {})
	slice := func(endpoints ...string) *lb.Slice { // "ADDRESS NODE"
		s := &lb.Slice{}
		for _, e := range endpoints {
			addr, node, _ := strings.Cut(e, " ")
			s.Endpoints = append(s.Endpoints, lb.Endpoint{Ready: node != "late", Addr: netip.MustParseAddr(addr), Where: lb.Topology{Node: node}.Share()})
		}
		return s
	}
	set := func(name string, s *lb.Slice) { l.setSlices(map[lb.SliceName]*lb.Slice{{Name: name}: s}) }
	want := func(what, elsewhere, here string) {
		t.Helper()
		if got := fmt.Sprint(l.backends.Elsewhere); got != "["+elsewhere+"]" {
			t.Errorf("%s: on other nodes are %s, want %s", what, got, elsewhere)
		}
		if got := fmt.Sprint(l.backends.Here); got != "["+here+"]" {
			t.Errorf("%s: on this node are %s, want %s", what, got, here)
		}
	}
	set("a", slice("10.244.1.1 here", "10.244.2.7 there", "10.244.2.5 there", "10.244.3.1 ", "10.244.4.1 late", "fd00::2:1 there", "fd00::2:2 there", "fd00:0:0:3::1 there"))
	want("two of a /24, three of two /64", "10.244.2.5 fd00::2:1 fd00:0:0:3::1", "10.244.1.1")
	set("b", slice("10.244.2.1 there", "10.244.9.1 elsewhere"))
	want("another slice", "10.244.2.1 10.244.2.5 10.244.9.1 fd00::2:1 fd00:0:0:3::1", "10.244.1.1")
	set("a", slice("10.244.1.1 here"))
	want("the first one has less", "10.244.2.1 10.244.9.1", "10.244.1.1")
	for i := range 9 {
		set(fmt.Sprint("c", i), slice(fmt.Sprintf("10.244.9.%d there", 9-i)))
	}
	want("many of a network", "10.244.2.1 10.244.9.1 10.244.9.2 10.244.9.3 10.244.9.4", "10.244.1.1")
	for i := range 9 {
		set(fmt.Sprint("c", i), nil)
	}
	set("a", nil)
	set("b", nil)
	want("all go", "", "")
	if len(l.slices)+len(l.networks) > 0 {
		t.Errorf("%d slices and %d networks are known, want none", len(l.slices), len(l.networks))
	}
}

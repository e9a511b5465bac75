package network

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestDatagramsWithAChecksumInside sends VXLAN to a Service: its datagrams have no checksum,
// and a device on the way is still to finish the one of the datagram inside.
func TestDatagramsWithAChecksumInside(t *testing.T) {
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
		node.sumHere("pod0")
	}
	n.startAgents()
	inside := netip.MustParseAddrPort("172.29.0.2:9")
	n.client.tunnelTo(netip.AddrPortFrom(n.nodes[0].addr, onNode1), inside.Addr())
	conn, err := n.client.dial("udp", inside)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := n.nodes[0].pod.datagrams()
	const datagrams = 10
	for range datagrams {
		if _, err := conn.Write([]byte("inside")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the pod gets them", func() error {
		now := n.nodes[0].pod.datagrams()
		if got, wrong := now.received-before.received, now.wrongSums-before.wrongSums; got < datagrams || wrong > 0 {
			return fmt.Errorf("%d were received, %d had a wrong checksum; want at least %d, and none", got, wrong, datagrams)
		}
		return nil
	})
}

// tunnelTo makes a VXLAN to an address and port, over datagrams without checksums, and
// one neighbor in it.
func (h *host) tunnelTo(to netip.AddrPort, neighbor netip.Addr) {
	h.tb.Helper()
	h.do(func() error {
		return netlink.LinkAdd(&netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: "vx0", MTU: 1200}, VxlanId: 7, Port: int(to.Port()),
			SrcAddr: clientAddr[0].AsSlice(), Group: to.Addr().AsSlice(),
		})
	})
	h.up("vx0")
	h.address("vx0", neighbor.Prev().String()+"/24")
	h.do(func() error {
		l, err := netlink.LinkByName("vx0")
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, IP: neighbor.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}, State: unix.NUD_PERMANENT,
		})
	})
}

// datagrams is what the kernel of a machine counts of UDP over IPv4.
type datagrams struct{ received, wrongSums int }

func (h *host) datagrams() (d datagrams) {
	h.tb.Helper()
	h.do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		var names, values []string
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "Udp:" {
				names, values = values, fields
			}
		}
		for i, name := range names {
			switch name {
			case "InDatagrams":
				_, err = fmt.Sscan(values[i], &d.received)
			case "InCsumErrors":
				_, err = fmt.Sscan(values[i], &d.wrongSums)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return d
}

package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestDatagramsWithAChecksumInside sends what VXLAN may send to a Service: its datagrams
// have no checksum, and a device on the way is still to finish that of what is inside.
func TestDatagramsWithAChecksumInside(t *testing.T) {
	n := newNetwork(t, false)
	for _, node := range n.nodes {
		node.serve()
		node.sumHere("pod0")
	}
	n.startAgents()
	const datagrams = 10
	before := n.nodes[0].pod.datagrams()
	for range datagrams {
		n.sendUnfinished(onNode1)
	}
	eventually(t, "the pod gets them", func() error {
		now := n.nodes[0].pod.datagrams()
		if got, wrong := now.received-before.received, now.wrongSums-before.wrongSums; got != datagrams || wrong > 0 {
			return fmt.Errorf("%d were received, %d had a wrong checksum; want %d, and none", got, wrong, datagrams)
		}
		return nil
	})
}

// unfinishedSum is the header of a frame of which a device has to finish a checksum, see
// struct virtio_net_hdr.
type unfinishedSum struct {
	Flags, GSOType                    uint8
	HeaderLen, GSOSize, Start, Offset uint16
}

// sendUnfinished sends a datagram from the client to a port of the first node. It has no
// checksum; one within its payload is to be finished.
func (n *network) sendUnfinished(port uint16) {
	n.tb.Helper()
	transport := serialized(n.tb, gopacket.SerializeOptions{FixLengths: true},
		&layers.UDP{SrcPort: 50000, DstPort: layers.UDPPort(port)}, gopacket.Payload(make([]byte, 32)))
	frame := serialized(n.tb, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: n.client.mac("eth0"), DstMAC: n.far.mac("near"), EthernetType: layers.EthernetTypeIPv4},
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: clientAddr[0].AsSlice(), DstIP: n.nodes[0].addr.AsSlice()},
		gopacket.Payload(transport))
	const payload = 14 + 20 + 8
	header, err := binary.Append(nil, binary.NativeEndian, unfinishedSum{Flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, Start: payload, Offset: 6})
	if err != nil {
		n.tb.Fatal(err)
	}
	n.client.do(func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		if err := unix.SetsockoptInt(s, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return err
		}
		return unix.Sendto(s, append(header, frame...), 0, &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index})
	})
}

func serialized(tb testing.TB, options gopacket.SerializeOptions, of ...gopacket.SerializableLayer) []byte {
	tb.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, options, of...); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func (h *host) mac(device string) (mac net.HardwareAddr) {
	h.tb.Helper()
	h.do(func() error {
		l, err := netlink.LinkByName(device)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	return mac
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

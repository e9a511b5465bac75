package network

import (
	"strings"
	"testing"
)

// TestCarriedTransfersArriveWhole has all go to other nodes than the one where it comes in: long
// transfers, of which the client's device is to cut segments, and datagrams as long as the
// client's link takes, which are too long with an outer header.
func TestCarriedTransfersArriveWhole(t *testing.T) {
	const transfers, bytes = 4, 4 << 20
	for _, u := range []underlay{
		{name: "nodes of IPv4", mtu: 1500},
		{name: "nodes of IPv6, MTU 1400", mtu: 1400, ipv6: true},
		{name: "nodes of IPv4, UDP", mtu: 1500, udp: true},
		{name: "nodes of IPv6, UDP", mtu: 1500, ipv6: true, udp: true},
		{name: "nodes of IPv4, by drivers", mtu: 1500, xdp: true},
		{name: "nodes of IPv6, UDP, by drivers", mtu: 1500, ipv6: true, udp: true, xdp: true},
	} {
		t.Run(u.name, func(t *testing.T) {
			f := newFabricOver(t, "dsr", u)
			f.announce([]int{0})
			f.endpoints([]int{1, 2})
			f.start()
			eventually(t, "all nodes carry", f.carries)
			for _, family := range families {
				to := carriedAt[family]
				for range transfers {
					if err := f.client.transfer(to, bytes); err != nil {
						t.Errorf("%s: %v", to, err)
					}
				}
				f.wantLongDatagram(t, family)
			}
			if n := f.carriedAtDrivers(t); u.xdp != (n > 0) {
				t.Errorf("drivers carried %d packets", n)
			}
		})
	}
}

// wantLongDatagram has the client send a datagram as long as its link takes.
func (f *fabric) wantLongDatagram(t *testing.T, family family) {
	t.Helper()
	to := carriedAt[family]
	conn, err := f.client.dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	said, err := exchange(conn, strings.Repeat("x", 1500-[]int{20, 40}[family]-8))
	if err != nil || !strings.HasSuffix(said, " "+clientAddr[family].String()) {
		t.Errorf("%s: of a long datagram the answer begins %.60q, %v; want the client's address", to, said, err)
	}
}

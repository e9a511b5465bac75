package packets

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/lb"
)

// TestFragmentsInAnyOrder sends fragments over the wire to a server in this
// namespace, whose kernel puts them together: those that come before the first
// one of their datagram are queued, and go on behind it.
func TestFragmentsInAnyOrder(t *testing.T) {
	r := newRig(t)
	w := newWire(t, r)
	for _, b := range []book{v4, v6} {
		t.Run(b.family(), func(t *testing.T) { r.tell(t, story{tell: w.fragmentsInAnyOrder}, cast{b, r, lb.UDP}) })
	}
}

// wire is the other end of the uplink: what is written to it comes in there.
type wire struct {
	fd   int
	peer *netlink.Veth
	mac  net.HardwareAddr // of the uplink
}

func newWire(t *testing.T, r *rig) *wire {
	t.Helper()
	for path, value := range map[string]string{
		"ipv4/conf/all/rp_filter": "0", "ipv4/conf/" + uplink + "/rp_filter": "0", "ipv6/conf/all/disable_ipv6": "0", "ipv6/conf/lo/disable_ipv6": "0", "ipv6/conf/" + uplink + "/disable_ipv6": "0",
	} {
		must(t, os.WriteFile("/proc/sys/net/"+path, []byte(value), 0o644))
	}
	w := &wire{}
	for _, name := range []string{"lo", uplink, uplink + "-peer"} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
		switch name {
		case "lo":
			for _, a := range []netip.Addr{v4.local, v6.local} {
				ip := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
				must(t, netlink.AddrReplace(l, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD}))
			}
		case uplink:
			w.mac = l.Attrs().HardwareAddr
			for _, a := range []netip.Addr{v4.client, v6.client} {
				ip := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
				must(t, netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: ip, Scope: netlink.SCOPE_LINK}))
			}
		default:
			w.peer = l.(*netlink.Veth)
		}
	}
	var err error
	w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(w.fd) })
	return w
}

// send lets a frame come in by the uplink.
func (w *wire) send(t *testing.T, frame []byte) {
	t.Helper()
	frame = bytes.Clone(frame)
	copy(frame, w.mac)
	must(t, unix.Sendto(w.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: w.peer.Attrs().Index}))
}

func (w *wire) fragmentsInAnyOrder(t *testing.T, c cast) {
	backend := at(c.local, 8080)
	server, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(backend))
	must(t, err)
	defer server.Close()
	c.set(t, "web", c.frontend(lb.LoadBalancerIP, at(c.vip, 80), backend))
	wantQueued, wantReleased := uint64(0), uint64(0)
	for id, order := range append(permutations(4), []int{3, 3, 1, 0, 2}, []int{2, 3, 1, 0, 0}) {
		p := c.packet(at(c.client, uint16(40000+id)), at(c.vip, 80), 0)
		p.payload = bytes.Repeat([]byte(fmt.Sprint(order)), 300)
		if id%2 == 1 {
			p.inner = []header{{destination.number, hopByHop.bytes}} // Linux takes no long padding
		}
		if c.client.Is4() {
			p.inner = nil
		}
		first := slices.Index(order, 0)
		// IPv6 headers between hide which protocol a later fragment is of.
		if queued := first > 0 && p.inner == nil; queued {
			wantQueued, wantReleased = wantQueued+uint64(first), wantReleased+1
		} else if first > 0 {
			continue
		}
		parts := cut(p, uint32(id), (len(p.payload)/4+16)&^7, 4)
		for _, i := range order {
			w.send(t, parts[i].frame(t))
		}
		must(t, server.SetReadDeadline(time.Now().Add(5*time.Second)))
		got := make([]byte, 1<<16)
		n, from, err := server.ReadFromUDPAddrPort(got)
		if err != nil {
			t.Fatalf("in the order %v: %v", order, err)
		}
		if from.Port() != p.src.Port() || from.Addr().Unmap() != c.client || !bytes.Equal(got[:n], p.payload) {
			t.Fatalf("in the order %v: from %s came %d bytes, want %d from %s", order, from, n, len(p.payload), p.src)
		}
	}
	got := c.counters(t)
	for name, want := range map[string]uint64{"fragment_queued": wantQueued, "fragment_released": wantReleased} {
		if n := got[name] - c.counted[name]; n != want {
			t.Errorf("%s is %d, want %d", name, n, want)
		}
	}
}

// permutations returns every order of 0 … n-1.
func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{{}}
	}
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

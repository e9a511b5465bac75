// Package kernels has tests of what other kernels than that of this machine do. tests/kernels/run
// runs them there.
package kernels

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// family is a Service and its backend outside, in one family.
type family struct {
	device                     netlink.Link // that takes the outer header off, as in docs/edge.md
	client, vip, edge, backend netip.Addr
	protocol                   int          // of IP, of what is in the outer header
	port                       *netlink.Fou // that hands to the device what comes in UDP; nil: it comes as IP in IP
}

func ip4(port *netlink.Fou) family {
	return family{
		&netlink.Iptun{LinkAttrs: netlink.LinkAttrs{Name: "ipip0"}, FlowBased: true},
		netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.21"),
		unix.IPPROTO_IPIP, port,
	}
}

func ip6(port *netlink.Fou) family {
	return family{
		&netlink.Ip6tnl{LinkAttrs: netlink.LinkAttrs{Name: "ip6tnl1"}, FlowBased: true},
		netip.MustParseAddr("2001:db8:c::7"), netip.MustParseAddr("2001:db8:f::10"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::21"),
		unix.IPPROTO_IPV6, port,
	}
}

// carryPort is the port of UDP to which edges carry.
const carryPort = 6635

// A backend on which no agent runs takes what an edge carries by the kernel's own device, with the settings
// of docs/edge.md, and answers the client as the Service.
func TestTheKernelTakesOuterHeadersOff(t *testing.T) {
	testenv.Need(t)
	for name, f := range map[string]family{
		"ipip": ip4(nil), "ip6tnl": ip6(nil),
		"ipip-gue":   ip4(&netlink.Fou{Family: unix.AF_INET, Port: carryPort, EncapType: netlink.FOU_ENCAP_GUE}),
		"ip6tnl-gue": ip6(&netlink.Fou{Family: unix.AF_INET6, Port: carryPort, EncapType: netlink.FOU_ENCAP_GUE}),
		"ipip-fou":   ip4(&netlink.Fou{Family: unix.AF_INET, Port: carryPort, EncapType: netlink.FOU_ENCAP_DIRECT, Protocol: unix.IPPROTO_IPIP}),
		"ip6tnl-fou": ip6(&netlink.Fou{Family: unix.AF_INET6, Port: carryPort, EncapType: netlink.FOU_ENCAP_DIRECT, Protocol: unix.IPPROTO_IPV6}),
	} {
		t.Run(name, func(t *testing.T) {
			edge, backend := namespace(t, name+"-edge"), namespace(t, name+"-backend")
			f.addDevice(t, backend)
			inside(t, backend, func() error { return f.setUpBackend(edge) })
			var carried *os.File
			inside(t, edge, func() (err error) {
				carried, err = f.setUpEdge()
				return err
			})
			t.Cleanup(func() { carried.Close() })
			var conn net.Conn
			inside(t, edge, func() error {
				raw, err := f.rawSocket()
				if err != nil {
					return err
				}
				go f.carry(carried, raw)
				d := net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: f.client.AsSlice()}}
				conn, err = d.Dial("tcp", netip.AddrPortFrom(f.vip, 80).String())
				return err
			})
			defer conn.Close()
			must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			lines := bufio.NewReader(conn)
			for i := range 3 {
				fmt.Fprintln(conn, i)
				said, err := lines.ReadString('\n')
				if want := fmt.Sprintf("%d of %s\n", i, f.client); err != nil || said != want {
					t.Fatalf("the answer is %q, %v; want %q", said, err, want)
				}
			}
		})
	}
}

func namespace(t *testing.T, name string) *traffic.Namespace {
	t.Helper()
	ns, err := traffic.NewNamespace(traffic.RunName("hg-decap") + "-" + name)
	must(t, err)
	t.Cleanup(func() { must(t, ns.Close()) })
	return ns
}

func inside(t *testing.T, ns *traffic.Namespace, f func() error) {
	t.Helper()
	must(t, ns.Do(f))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// first returns the first error of some steps.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// addDevice skips the test where the kernel has no such device.
func (f family) addDevice(t *testing.T, backend *traffic.Namespace) {
	t.Helper()
	err := backend.Do(func() error {
		if f.port != nil {
			if err := addPort(*f.port); err != nil {
				return err
			}
		}
		return netlink.LinkAdd(f.device)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
		testenv.Lacks(t, f.device.Type()+" device, or no fou", err)
	}
	must(t, err)
}

// addPort does what ip fou add does. That of the package names protocol 0 with GUE, which kernels refuse.
func addPort(f netlink.Fou) error {
	family, err := netlink.FouFamilyId()
	if err != nil {
		return err
	}
	attributes := []*nl.RtAttr{
		nl.NewRtAttr(netlink.FOU_ATTR_PORT, binary.BigEndian.AppendUint16(nil, uint16(f.Port))),
		nl.NewRtAttr(netlink.FOU_ATTR_TYPE, []byte{uint8(f.EncapType)}),
		nl.NewRtAttr(netlink.FOU_ATTR_AF, []byte{uint8(f.Family)}),
	}
	if f.Protocol != 0 {
		attributes = append(attributes, nl.NewRtAttr(netlink.FOU_ATTR_IPPROTO, []byte{uint8(f.Protocol)}))
	}
	request := nl.NewNetlinkRequest(family, unix.NLM_F_ACK)
	request.AddRawData([]byte{netlink.FOU_CMD_ADD, 1, 0, 0})
	for _, a := range attributes {
		request.AddRawData(a.Serialize())
	}
	_, err = request.Execute(unix.NETLINK_GENERIC, 0)
	return err
}

// setUpBackend makes the link to the edge, and does what docs/edge.md says.
func (f family) setUpBackend(edge *traffic.Namespace) error {
	other, err := os.Open(edge.Path())
	if err != nil {
		return err
	}
	defer other.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(other.Fd())}
	return first(
		func() error { return netlink.LinkAdd(veth) },
		func() error { return sysctls("ipv6/conf/all/disable_ipv6", "0", "ipv4/conf/all/rp_filter", "0") },
		func() error {
			if f.vip.Is6() {
				return nil
			}
			return sysctls("ipv4/conf/ipip0/rp_filter", "2")
		},
		func() error { return address("eth0", f.backend) },
		func() error { return address(f.device.Attrs().Name, f.vip) },
		func() error { return route("eth0", f.edge, netip.Addr{}) },
		func() error { return route("eth0", f.client, f.edge) },
		f.serve,
	)
}

// serve answers each line with the address of the client.
func (f family) serve() error {
	l, err := net.Listen("tcp", netip.AddrPortFrom(f.vip, 80).String())
	if err != nil {
		return err
	}
	go func() {
		conn, err := l.Accept()
		l.Close()
		if err != nil {
			return
		}
		defer conn.Close()
		from, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			fmt.Fprintf(conn, "%s of %s\n", lines.Text(), from)
		}
	}()
	return nil
}

// setUpEdge has what the client sends to the Service come to the file that it returns.
func (f family) setUpEdge() (*os.File, error) {
	tun, err := openTun("client0")
	if err != nil {
		return nil, err
	}
	return tun, first(
		func() error { return sysctls("ipv6/conf/all/disable_ipv6", "0", "ipv4/conf/all/rp_filter", "0") },
		func() error { return address("lo", f.client) },
		func() error { return address("eth0", f.edge) },
		func() error { return address("client0", netip.Addr{}) },
		func() error { return route("eth0", f.backend, netip.Addr{}) },
		func() error { return route("client0", f.vip, netip.Addr{}) },
	)
}

func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("make tun device: %w", err)
	}
	err = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name), err
}

// rawSocket returns a socket by which whole packets are sent.
func (f family) rawSocket() (int, error) {
	domain := unix.AF_INET
	if f.vip.Is6() {
		domain = unix.AF_INET6
	}
	return unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
}

// carry puts the outer header of an edge (bpf/carry/outer.h) before what the client sends.
func (f family) carry(from *os.File, raw int) {
	defer unix.Close(raw)
	for b := make([]byte, 65536); ; {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if isIPv6 := b[0]>>4 == 6; isIPv6 != f.vip.Is6() {
			continue // the stack greets its neighbours
		}
		packet := append(f.outer(n), b[:n]...)
		if f.vip.Is6() {
			_ = unix.Sendto(raw, packet, 0, &unix.SockaddrInet6{Addr: f.backend.As16()})
		} else {
			_ = unix.Sendto(raw, packet, 0, &unix.SockaddrInet4{Addr: f.backend.As4()})
		}
	}
}

// outer is the header before so many bytes.
func (f family) outer(n int) (h []byte) {
	protocol, udp := f.protocol, []byte(nil)
	if f.port != nil {
		protocol, udp = unix.IPPROTO_UDP, f.outerUDP(n)
	}
	if f.vip.Is6() {
		h = []byte{0x60, 0, 0, 0, 0, 0, byte(protocol), 64}
		binary.BigEndian.PutUint16(h[4:], uint16(len(udp)+n))
	} else { // the kernel sums it up
		h = []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, byte(protocol), 0, 0}
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(udp)+n))
	}
	return slices.Concat(h, f.edge.AsSlice(), f.backend.AsSlice(), udp)
}

// outerUDP is the header of UDP before so many bytes, from the port of some flow and without a checksum.
func (f family) outerUDP(n int) []byte {
	const flowPort = 0xc123
	h := binary.BigEndian.AppendUint16(nil, flowPort)
	h = binary.BigEndian.AppendUint16(h, carryPort)
	h = binary.BigEndian.AppendUint16(h, uint16(8+n))
	return append(h, 0, 0)
}

func sysctls(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if err := os.WriteFile("/proc/sys/net/"+pairs[i], []byte(pairs[i+1]), 0); err != nil {
			return err
		}
	}
	return nil
}

// address has a device up with an address, the zero Addr for none.
func address(device string, a netip.Addr) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(l); err != nil || !a.IsValid() {
		return err
	}
	return netlink.AddrAdd(l, &netlink.Addr{IPNet: host(a), Flags: unix.IFA_F_NODAD})
}

func host(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// route has a device, and a gateway if there is one, lead to an address.
func route(device string, to, via netip.Addr) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: host(to), Scope: netlink.SCOPE_LINK}
	if via.IsValid() {
		r.Gw, r.Scope = via.AsSlice(), netlink.SCOPE_UNIVERSE
	}
	return netlink.RouteAdd(r)
}

package probe

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/pkg/packet"
	"github.com/headgate/headgate/pkg/traffic"
	"github.com/headgate/headgate/tests/testenv"
)

const udpPort = 6635

// outside is a network namespace with an edge and a backend outside, which answers what is carried to it.
type outside struct {
	ns                *traffic.Namespace
	backend, frontend netip.Addr
	answers           byte // flags of TCP; 0: it is silent
}

func newOutside(t *testing.T, backend, frontend string) *outside {
	t.Helper()
	testenv.Need(t)
	ns, err := traffic.NewNamespace(fmt.Sprint("probe-", time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	o := &outside{ns: ns, backend: netip.MustParseAddr(backend), frontend: netip.MustParseAddr(frontend)}
	o.do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		for _, a := range []netip.Addr{o.backend, o.frontend} {
			to := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: to, Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		return nil
	})
	return o
}

func (o *outside) do(t *testing.T, f func() error) {
	t.Helper()
	if err := o.ns.Do(f); err != nil {
		t.Fatal(err)
	}
}

// serve answers what is carried, by a header of UDP or as IP in IP, until the test ends.
func (o *outside) serve(t *testing.T, udp bool) (resets chan uint32) {
	t.Helper()
	var in net.PacketConn
	var out *net.IPConn
	o.do(t, func() (err error) {
		if udp {
			in, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(o.backend, udpPort)))
		} else {
			in, err = net.ListenIP(rawNetwork(o.backend, map[bool]string{true: "4", false: "41"}[o.backend.Is4()]), ipAddr(o.backend))
		}
		if err == nil {
			out, err = net.ListenIP(rawNetwork(o.frontend, "tcp"), ipAddr(o.frontend))
		}
		return err
	})
	t.Cleanup(func() { in.Close(); out.Close() })
	resets = make(chan uint32, 10)
	go func() {
		for b := make([]byte, 2000); ; {
			n, from, err := in.ReadFrom(b)
			if err != nil {
				return
			}
			l4 := b[n-packet.TCPLen : n]
			if l4[13]&packet.RST != 0 {
				resets <- binary.BigEndian.Uint32(l4[4:])
				continue
			}
			if o.answers != 0 {
				_, _ = out.WriteToIP(o.answer(l4, addrOf(from)), ipAddr(addrOf(from)))
			}
		}
	}()
	return resets
}

// answer is what a segment is answered with.
func (o *outside) answer(l4 []byte, client netip.Addr) []byte {
	at := func(a netip.Addr, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port))
	}
	whole := packet.TCP(at(o.frontend, l4[2:]), at(client, l4), o.answers, 7)
	out := whole[len(whole)-packet.TCPLen:]
	binary.BigEndian.PutUint32(out[8:], binary.BigEndian.Uint32(l4[4:])+1)
	return out
}

// A backend outside is well if it takes what is carried to it, and the connection ends at once.
func TestABackendOutsideIsWellIfItTakesWhatIsCarried(t *testing.T) {
	for _, at := range [][2]string{{"192.0.2.21", "203.0.113.10"}, {"2001:db8::21", "2001:db8:f::10"}} {
		for _, udp := range []bool{false, true} {
			for _, c := range []struct {
				name    string
				answers byte
				want    string // of the error; "" for none
			}{{"takes", packet.SYN | packet.ACK, ""}, {"refuses", packet.RST | packet.ACK, "refuses what is carried"}, {"is silent", 0, "does not answer what is carried"}} {
				t.Run(fmt.Sprint(at[0], udp, c.name), func(t *testing.T) {
					o := newOutside(t, at[0], at[1])
					o.answers = c.answers
					resets := o.serve(t, udp)
					cfg := Config{}
					if udp {
						cfg.CarryPort = udpPort
					}
					to := target{at: netip.AddrPortFrom(o.backend, 80), frontend: netip.AddrPortFrom(o.frontend, 80)}
					var err error
					o.do(t, func() error { err = cfg.ask(t.Context(), to, 2500*time.Millisecond); return nil })
					if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
						t.Errorf("it is said %v, want %q", err, c.want)
					}
					if c.want != "" {
						return
					}
					select {
					case seq := <-resets:
						if seq != 1 {
							t.Errorf("it ends with a reset at %d, want 1", seq)
						}
					case <-time.After(20 * time.Second):
						t.Error("it does not end")
					}
				})
			}
		}
	}
}

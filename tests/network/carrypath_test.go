package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/headgate/headgate/pkg/datapath"
)

// drops has the router drop, of what comes in from a node, what an nftables rule matches; "" for
// nothing.
func (f *fabric) drops(from *node, rule string) {
	f.tb.Helper()
	table := "table netdev " + from.name
	text := table + "\ndelete " + table + "\n"
	if rule != "" {
		text += fmt.Sprintf("%s {\nchain in {\ntype filter hook ingress device %q priority 0;\n%s drop\n}\n}\n", table, from.name, rule)
	}
	f.router.do(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	})
}

// peerSaid is what headgate peer list shows of another node.
type peerSaid struct {
	Node, Reason             string
	Usable, Carries, Returns bool
	MTU                      uint32
}

// saysOf returns that.
func (n *node) saysOf(other *node) (said peerSaid, err error) {
	cmd := exec.Command("/proc/self/exe", "--bpf-root", n.root, "peer", "list", "-o", "json")
	for i, o := range n.options {
		if o == "--state-dir" {
			cmd.Args = append(cmd.Args, o, n.options[i+1])
		}
	}
	cmd.Env, cmd.Stderr = append(os.Environ(), asHeadgate+"=1"), os.Stderr
	var out []byte
	n.do(func() (err error) { out, err = cmd.Output(); return err })
	var all struct{ Items []peerSaid }
	if err := json.Unmarshal(out, &all); err != nil {
		return said, fmt.Errorf("%w: %s", err, out)
	}
	for _, p := range all.Items {
		if p.Node == other.name {
			return p, nil
		}
	}
	return said, fmt.Errorf("nothing is said of %s: %s", other.name, out)
}

// says waits until a node says what is to be true of another.
func (n *node) says(what string, other *node, is func(peerSaid) bool) {
	n.tb.Helper()
	began := time.Now()
	eventually(n.tb, what, func() error {
		p, err := n.saysOf(other)
		if err == nil && !is(p) {
			err = fmt.Errorf("%s says of %s: %+v", n.name, other.name, p)
		}
		return err
	})
	n.tb.Logf("%s: after %s", what, time.Since(began).Round(100*time.Millisecond))
}

// asks has the client ask five times, over both families, whose address the pod sees: the client's
// own where it is carried.
func (f *fabric) asks(t *testing.T, when string, carried bool) {
	t.Helper()
	for _, family := range families {
		for range 5 {
			got, err := f.client.ask("tcp", carriedAt[family])
			if sees := strings.HasSuffix(got, " "+clientAddr[family].String()); err != nil || sees != carried {
				t.Errorf("%s, over %v: %q, %v; carried is to be %v", when, family, got, err, carried)
			}
		}
	}
}

// What the network drops on the way to a home is found before clients find it, and goes by SNAT; once
// it is not dropped any more all is carried again.
func TestAPathThatDropsIsFoundAndLeft(t *testing.T) {
	f := newFabric(t, "dsr")
	f.announce([]int{0})
	f.endpoints([]int{1, 2})
	f.start()
	eventually(t, "all nodes carry", f.carries)
	f.asks(t, "at first", true)
	in, usable := f.nodes[0], func(p peerSaid) bool { return p.Usable }

	const carried = "udp dport 6635"
	f.drops(in, carried)
	f.drops(f.nodes[1], carried) // answers go straight, and are no matter
	for _, home := range f.nodes[1:] {
		in.says("that nothing gets there", home, func(p peerSaid) bool {
			return !p.Usable && !p.Carries && strings.Contains(p.Reason, "does not answer")
		})
	}
	f.asks(t, "while what is carried is dropped", false)
	f.drops(in, "")
	f.drops(f.nodes[1], "")
	eventually(t, "all nodes carry again", f.carries)
	f.asks(t, "once it is not", true)

	for _, home := range f.nodes[1:] {
		f.drops(home, "ip saddr "+carriedAt[0].Addr().String())
	}
	for _, home := range f.nodes[1:] {
		in.says("that clients get no answers", home, func(p peerSaid) bool {
			return !p.Usable && p.Carries && !p.Returns && strings.Contains(p.Reason, carriedAt[0].Addr().String())
		})
	}
	f.asks(t, "while a home may not send from the Service's address", false)
	for _, home := range f.nodes[1:] {
		f.drops(home, "")
	}
	eventually(t, "all nodes carry after that", f.carries)
	f.asks(t, "once it may", true)

	f.nodes[1].stop()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if p, err := in.saysOf(f.nodes[1]); err != nil || !usable(p) {
			t.Fatalf("without its agent %s is not usable: %+v, %v", f.nodes[1].name, p, err)
		}
	}
	f.asks(t, "without an agent at a home", true)
}

// Who sends SYNs from an address and completes none has nobody take a home's answers for dropped.
func TestSYNsThatNobodyCompletesStopNoCarrying(t *testing.T) {
	f := newFabric(t, "dsr")
	f.announce([]int{0})
	f.endpoints([]int{1, 2})
	f.start()
	eventually(t, "all nodes carry", f.carries)
	for i := range uint32(95) { // for longer than silence has to last
		f.client.sendRaw(carriedAt[0].Addr(), syn(200*i, carriedAt[0])[2:]) // of one address
		time.Sleep(130 * time.Millisecond)
	}
	for _, home := range f.nodes[1:] {
		if p, err := f.nodes[0].saysOf(home); err != nil || !p.Usable {
			t.Errorf("%s is not usable: %+v, %v", home.name, p, err)
		}
	}
	f.asks(t, "after SYNs that nobody completes", true)
}

// A way to one home takes packets of 1,400 bytes, and says so to nobody.
func TestALegThatIsShortIsFound(t *testing.T) {
	for _, u := range []underlay{{name: "nodes of IPv4", mtu: 1500}, {name: "nodes of IPv6", mtu: 1500, ipv6: true}} {
		t.Run(u.name, func(t *testing.T) {
			f := newFabricOver(t, "dsr", u)
			f.announce([]int{0})
			f.endpoints([]int{1})
			f.router.do(func() error {
				bridge, err := netlink.LinkByName("br0")
				leg, failed := netlink.LinkByName(f.nodes[1].name)
				if err = errors.Join(err, failed); err != nil {
					return err
				}
				return errors.Join(netlink.LinkSetMTU(bridge, 1500), netlink.LinkSetMTU(leg, 1400))
			})
			f.start()
			eventually(t, "all nodes carry", f.carries)
			f.nodes[0].says("how long packets may be", f.nodes[1], func(p peerSaid) bool { return p.Usable && p.MTU == 1400 })
			f.asks(t, "by a short leg", true)
			for _, family := range families {
				if err := f.client.upload(carriedAt[family], 1<<20); err != nil {
					t.Errorf("%v: %v", family, err)
				}
			}
			f.router.do(func() error {
				leg, err := netlink.LinkByName(f.nodes[1].name)
				if err != nil {
					return err
				}
				return netlink.LinkSetMTU(leg, 1500)
			})
			if testing.Short() {
				return
			}
			began := time.Now()
			eventually(t, "longer packets are found to get there", func() error {
				r, err := datapath.Inspect(f.nodes[0].root)
				if err != nil {
					return err
				}
				defer r.Close()
				for _, p := range r.Peers() {
					if p.Theirs == f.known(f.nodes[1]) && p.MTU == 1500 {
						return nil
					}
				}
				return errors.New("it is 1400 still")
			})
			t.Logf("longer packets: after %s", time.Since(began).Round(time.Second))
		})
	}
}

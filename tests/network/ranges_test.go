package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSourceRangesHoldOnEveryPath has a Service for some clients only, and asks it
// as each: by packets and by sockets, in both families.
func TestSourceRangesHoldOnEveryPath(t *testing.T) {
	n := newNetworkOf(t, layout{})
	for _, node := range n.nodes {
		node.serve()
		node.options = []string{"--pod-devices", "all"}
	}
	here := n.nodes[0]
	clients := []struct {
		name string
		own  [2]netip.Prefix // what its ranges would be
		ask  func(protocol string, to netip.AddrPort) (string, error)
		// try is quicker where nobody answers.
		try func(to netip.AddrPort) error
	}{
		{"outside", prefixes(clientAddr), n.client.ask, n.client.send},
		{"a pod by packets", prefixes(here.podAddrs(here.guest)), here.guest.ask, here.guest.send},
		{"a pod by sockets", prefixes(here.podAddrs(here.pod)), here.locally(here.pod), nil},
		{"the node", prefixes([2]netip.Addr{here.addr, here.addr6}), here.locally(here.host), nil},
	}
	started := false
	for i, allowed := range clients {
		ranges := fmt.Sprintf("  loadBalancerSourceRanges: [%q, %q]\n", allowed.own[0], allowed.own[1])
		limited := strings.Replace(services, withAddresses, ranges+withAddresses, 1)
		if !started {
			n.write("pods.yaml", n.podObjects(""))
			n.startAgentsWith(limited, frontendCount)
			here.awaitPods(2)
			started = true
		} else {
			n.write("services.yaml", limited)
		}
		for j, c := range clients {
			for f, vip := range loadBalancer {
				to := netip.AddrPortFrom(vip, 80)
				for _, protocol := range []string{"tcp", "udp"} {
					eventually(t, fmt.Sprintf("%s with ranges of %s, %s %s", c.name, allowed.name, protocol, vip), func() error {
						before := here.drops(t)["source_range"]
						if i != j && c.try != nil {
							return wantDrop(c.try(to), here.drops(t)["source_range"]-before)
						}
						said, err := c.ask(protocol, to)
						if i != j && err != nil {
							return wantDrop(nil, here.drops(t)["source_range"]-before)
						}
						if i != j || err != nil || !strings.HasPrefix(said, "pod-2 ") {
							return fmt.Errorf("answers %q, %v", said, err)
						}
						return nil
					})
				}
				if i != j { // a NodePort is for everybody
					if said, err := c.ask("tcp", here.at(family(f), onNode2)); err != nil {
						t.Errorf("%s by the NodePort: %q, %v", c.name, said, err)
					}
				}
			}
		}
	}
}

func prefixes(addrs [2]netip.Addr) (out [2]netip.Prefix) {
	for f, a := range addrs {
		out[f] = netip.PrefixFrom(a, a.BitLen())
	}
	return out
}

// locally asks once from a process whose sockets are balanced.
func (n *node) locally(from *host) func(string, netip.AddrPort) (string, error) {
	return func(protocol string, to netip.AddrPort) (string, error) {
		said, err := n.askLocally(from, protocol, to, 1)
		if i := slices.IndexFunc(said, func(s string) bool { return strings.HasPrefix(s, "error: ") }); i >= 0 && err == nil {
			err = fmt.Errorf("%s", said[i])
		}
		return said[0], err
	}
}

func wantDrop(err error, drops uint64) error {
	if err != nil || drops == 0 {
		return fmt.Errorf("%d drops, %v", drops, err)
	}
	return nil
}

// send sends a datagram, and gives it the time to arrive.
func (h *host) send(to netip.AddrPort) error {
	conn, err := h.dial("udp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("x"))
	time.Sleep(20 * time.Millisecond)
	return err
}

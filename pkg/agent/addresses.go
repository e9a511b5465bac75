package agent

import (
	"net/netip"
	"sync"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
	"github.com/headgate/headgate/pkg/source/proxyconfig"
)

// nodeAddresses puts together on which addresses NodePorts answer: what the
// devices have, what the Node object calls primary, what the configuration
// allows.
type nodeAddresses struct {
	allow    proxyconfig.NodePorts
	bind     netip.Addr // primary address whatever the Node says, unless unspecified
	loopback bool
	notify   func(map[netip.Addr]plan.AddressKind)

	mu      sync.Mutex
	local   map[netip.Addr]bool // nil as long as nothing is known
	primary []netip.Addr
}

func newNodeAddresses(cfg Config, notify func(map[netip.Addr]plan.AddressKind)) *nodeAddresses {
	return &nodeAddresses{allow: cfg.NodePorts, bind: cfg.BindAddress, loopback: cfg.NodePortLoopback, notify: notify}
}

// setLocal says which addresses the node's devices have.
func (n *nodeAddresses) setLocal(local map[netip.Addr]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.local = local
	n.notify(n.kinds())
}

// setNode says what the Node object says.
func (n *nodeAddresses) setNode(node lb.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.primary = nil
	for _, a := range []netip.Addr{node.IP4, node.IP6} {
		switch {
		case !a.IsValid():
		case n.bind.IsValid() && !n.bind.IsUnspecified() && n.bind.Is4() == a.Is4():
			n.primary = append(n.primary, n.bind)
		default:
			n.primary = append(n.primary, a)
		}
	}
	if n.local != nil {
		n.notify(n.kinds())
	}
}

// kinds returns the addresses of the node, and on which of them NodePorts answer.
func (n *nodeAddresses) kinds() map[netip.Addr]plan.AddressKind {
	out := map[netip.Addr]plan.AddressKind{}
	for a := range n.local {
		if out[a] = plan.OwnAddress; n.allow.Allow(a, n.primary) {
			out[a] = plan.NodeAddress
		}
	}
	if n.loopback {
		out[netip.AddrFrom4([4]byte{127, 0, 0, 1})] = plan.LoopbackAddress
		out[netip.IPv6Loopback()] = plan.LoopbackAddress
	}
	return out
}

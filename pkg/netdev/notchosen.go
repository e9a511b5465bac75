package netdev

import (
	"net"
	"slices"

	"github.com/vishvananda/netlink"
)

// mayBeCards are the types of devices that are the cards of a node in a container, and lead to pods
// elsewhere. CNIs give those of pods no address, or one without a network (/32, /128).
var mayBeCards = append([]string{"macvlan", "ipvlan"}, ofPods...)

// NotChosen returns the devices of the network namespace of the calling thread on which others may reach the node and
// whose packets no program sees, given the indexes of those that are chosen. Each is a name and an address with the
// length of its network, such as "eth1 198.51.100.1/24".
func NotChosen(chosen map[int]bool) (out []string, err error) {
	n, err := readNetwork()
	if err != nil {
		return nil, err
	}
	for _, l := range n.links {
		a := l.Attrs()
		if a.Flags&net.FlagUp == 0 || a.Flags&net.FlagLoopback != 0 || isDown(a.OperState) || n.isPort(l) || n.isSeen(l, chosen) {
			continue
		}
		card, may := n.isCard(l), slices.Contains(mayBeCards, l.Type())
		for i := range n.addresses[a.Index] {
			addr := &n.addresses[a.Index][i]
			ones, bits := addr.Mask.Size()
			if isReachable(addrOf(*addr)) && (card || may && ones < bits) {
				out = append(out, a.Name+" "+addr.IPNet.String())
				break
			}
		}
	}
	return out, nil
}

// isSeen says whether programs of chosen devices see the packets of a device: it is one of them, or has one below it or as its port.
func (n *network) isSeen(l netlink.Link, chosen map[int]bool) bool {
	a := l.Attrs()
	above := chosen[a.ParentIndex] && a.NetNsID < 0 && !slices.Contains(ofPods, l.Type()) // the parent of those is their peer
	return chosen[a.Index] || above || n.hasPort(a.Index, chosen)
}

// Package netdev knows the node's network devices and addresses, and the chains of its
// packet filter.
package netdev

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Addresses returns the addresses of the node, in the network namespace of the
// calling thread, on which others can reach it: those of every device, without
// loopback and link-local ones.
func Addresses() (map[netip.Addr]bool, error) {
	list, err := dump(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := map[netip.Addr]bool{}
	for _, a := range list {
		addr, ok := netip.AddrFromSlice(a.IP)
		if addr = addr.Unmap(); ok && isReachable(addr) {
			out[addr] = true
		}
	}
	return out, nil
}

func isReachable(a netip.Addr) bool {
	return !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() && !a.IsMulticast()
}

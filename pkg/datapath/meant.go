package datapath

import (
	"errors"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/headgate/headgate/pkg/lb"
	"github.com/headgate/headgate/pkg/plan"
)

// AddressKind returns what the maps know of an address; 0 is nothing.
func (r *Reader) AddressKind(a netip.Addr) (plan.AddressKind, error) {
	key, value := encodeAddr(a), headgateAddress{}
	err := r.maps.byName["addresses"].Lookup(&key, &value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, nil
	}
	return decodeAddress(value), err
}

// Meant returns the frontend that a client means who connects to an address from elsewhere:
// the one at it, or a NodePort at an address of the node. False is none.
func (r *Reader) Meant(to lb.AddrPort) (at lb.AddrPort, f plan.Frontend, found bool, err error) {
	if f, found = r.Frontend(to); found {
		return to, f, true, nil
	}
	kind, err := r.AddressKind(to.Addr)
	if err != nil || kind&(plan.NodeAddress|plan.LoopbackAddress) == 0 {
		return to, f, false, err
	}
	if at = to; to.Addr.Is4() {
		at.Addr = netip.IPv4Unspecified()
	} else {
		at.Addr = netip.IPv6Unspecified()
	}
	f, found = r.Frontend(at)
	return at, f, found, nil
}

// Unserved returns why a client is refused at an address that has no frontend, in the word
// of the counter; "" where it is left alone.
func (r *Reader) Unserved(to netip.Addr) (reason string, err error) {
	kind, err := r.AddressKind(to)
	if err != nil {
		return "", err
	}
	names, err := names()
	if err != nil {
		return "", err
	}
	switch {
	case kind&plan.ServiceAddress != 0:
		return names.drops[headgateDropReasonDROP_NO_SERVICE_PORT], nil
	case kind&^plan.FrontendAddress == 0 && r.inServiceCIDR(to):
		return names.drops[headgateDropReasonDROP_NO_SERVICE], nil
	default:
		return "", nil
	}
}

// TurnsBack returns why a packet for an address is refused that leaves for a router by the device that it came by, in the
// word of the counter; "" if the address is of no Service. See bpf/tc/turned.h.
func (r *Reader) TurnsBack(to netip.Addr) (reason string, err error) {
	kind, err := r.AddressKind(to)
	if err != nil || kind&(plan.ServiceAddress|plan.FrontendAddress) == 0 && !r.inServiceCIDR(to) {
		return "", err
	}
	names, err := names()
	if err != nil {
		return "", err
	}
	return names.drops[headgateDropReasonDROP_NO_SERVICE_PORT], nil
}

func (r *Reader) inServiceCIDR(a netip.Addr) bool {
	for _, cidr := range r.maps.cidrs.at(0).Cidr {
		if p, ok := decodePrefix(cidr); ok && p.Contains(a) {
			return true
		}
	}
	return false
}

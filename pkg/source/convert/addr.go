package convert

import "net/netip"

// address parses an IP as the API server does: no IPv4-mapped IPv6, no leading
// zeros, no zone. ok is false where it is not one, and the finding is noted.
func (f *findings) address(field, value string) (addr netip.Addr, ok bool) {
	const remedy = `write an IPv4 or IPv6 address, such as "192.0.2.1" or "2001:db8::1"`
	addr, err := netip.ParseAddr(value)
	switch {
	case value == "":
		f.add(field, "", "is empty", remedy)
	case err != nil:
		f.add(field, value, "is not an IP address", remedy)
	case addr.Is4In6():
		f.add(field, value, "is an IPv4-mapped IPv6 address", `write "`+addr.Unmap().String()+`"`)
	case addr.Zone() != "":
		f.add(field, value, "has a zone", `write "`+addr.WithZone("").String()+`"`)
	default:
		return addr, true
	}
	return netip.Addr{}, false
}

// unicast parses an IP that can be reached from elsewhere, and is no node's
// own affair (ValidateNonSpecialIP of the API server).
func (f *findings) unicast(field, value string) (addr netip.Addr, ok bool) {
	addr, ok = f.address(field, value)
	if !ok {
		return addr, false
	}
	special := specialName(addr)
	if special == "" && addr.IsLinkLocalUnicast() {
		special = "a link-local"
	}
	return addr, f.notSpecial(field, value, special)
}

// ingress parses an address of a load balancer. The API server takes any;
// link-local ones are in use, the others could only catch foreign traffic.
func (f *findings) ingress(field, value string) (addr netip.Addr, ok bool) {
	addr, ok = f.address(field, value)
	return addr, ok && f.notSpecial(field, value, specialName(addr))
}

// notSpecial says whether special is "", and notes the finding where not.
func (f *findings) notSpecial(field, value, special string) bool {
	if special == "" {
		return true
	}
	f.add(field, value, "is "+special+" address", "write a unicast address that other nodes can reach")
	return false
}

// specialName says what kind of address it is where nothing can ever answer on
// it from outside, "" for all others.
func specialName(addr netip.Addr) string {
	switch {
	case addr.IsUnspecified():
		return "the unspecified"
	case addr.IsLoopback():
		return "a loopback"
	case addr.IsMulticast():
		return "a multicast"
	case addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast"
	default:
		return ""
	}
}

package convert

import (
	"cmp"
	"net/netip"
)

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
	special := cmp.Or(linkLocalName(addr), specialName(addr))
	return addr, f.notSpecial(field, value, special)
}

// ingress parses an address of a load balancer. The API server takes any; link-local
// ones are in use, apart from those where clouds tell secrets.
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

// metadata are where clouds give secrets to whatever asks from a machine of theirs.
var metadata = map[netip.Addr]bool{
	netip.MustParseAddr("169.254.169.254"): true,
	netip.MustParseAddr("169.254.170.2"):   true,
	netip.MustParseAddr("169.254.170.23"):  true,
	netip.MustParseAddr("fe80::a9fe:a9fe"): true,
	netip.MustParseAddr("fd00:ec2::23"):    true,
	netip.MustParseAddr("fd00:ec2::254"):   true,
	netip.MustParseAddr("fd20:ce::254"):    true,
}

// nat64 are IPv6 addresses that stand for IPv4 ones, the last four bytes (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// embedded returns the IPv4 address that a NAT64 gateway makes of one, else the address itself.
func embedded(addr netip.Addr) netip.Addr {
	if !nat64.Contains(addr) {
		return addr
	}
	bytes := addr.As16()
	return netip.AddrFrom4([4]byte(bytes[12:]))
}

// linkLocalName says that an address is one of a link, "" for all others.
func linkLocalName(addr netip.Addr) string {
	if embedded(addr).IsLinkLocalUnicast() {
		return "a link-local"
	}
	return ""
}

// specialName says what kind of address it is where no Service can answer on it from
// outside, or none may, "" for all others.
func specialName(addr netip.Addr) string {
	addr = embedded(addr)
	switch {
	case metadata[addr]:
		return "a cloud's metadata"
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

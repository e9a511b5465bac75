package lb

import "net/netip"

// Family is an IP family, named as Kubernetes names it.
type Family string

// The IP families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// FamilyOf returns the family of an address. An IPv4-mapped one is IPv6.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

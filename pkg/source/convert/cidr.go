package convert

import (
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
)

// ServiceCIDR returns the prefixes of a ServiceCIDR, masked, in its order
// (KEP-1880). Problems reads the error.
func ServiceCIDR(c *networkingv1.ServiceCIDR) ([]netip.Prefix, error) {
	f := &findings{object: "ServiceCIDR " + c.Name}
	var prefixes []netip.Prefix
	for i, value := range c.Spec.CIDRs {
		if p, ok := f.prefix(fmt.Sprintf("spec.cidrs[%d]", i), value); ok {
			prefixes = append(prefixes, p)
		}
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return prefixes, nil
}

package preflight

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/headgate/headgate/pkg/netdev"
)

// Modes of kube-proxy, and the table that nftables has of it.
const (
	modeIPTables  = "iptables"
	modeNFTables  = "nftables"
	modeIPVS      = "ipvs"
	nftablesTable = "kube-proxy"
	ipvsDevice    = "kube-ipvs0"
)

// proxyRules are the rules of one kube-proxy.
type proxyRules struct {
	where     string // for people
	mode      string // of the kube-proxy that writes such
	services  int    // chains of Services, in all families
	endpoints int
}

// String says what there is.
func (p proxyRules) String() string {
	if p.mode == modeIPVS {
		return "device " + ipvsDevice
	}
	return fmt.Sprintf("%s: chains of %s and %s", p.where, plural(p.services, "Service port", "Service ports"), plural(p.endpoints, "endpoint", "endpoints"))
}

// rulesOf returns which rules of kube-proxy are among chains.
func rulesOf(chains []netdev.Chain) (all []proxyRules) {
	for _, one := range []struct {
		proxyRules
		is                      func(netdev.Chain) bool
		mark, service, endpoint string
	}{
		{proxyRules{where: "iptables-legacy", mode: modeIPTables}, func(c netdev.Chain) bool { return c.Legacy }, "KUBE-SERVICES", "KUBE-SVC-", "KUBE-SEP-"},
		{proxyRules{where: "iptables-nft", mode: modeIPTables}, func(c netdev.Chain) bool { return !c.Legacy && c.Table == "nat" }, "KUBE-SERVICES", "KUBE-SVC-", "KUBE-SEP-"},
		{proxyRules{where: "nftables", mode: modeNFTables}, func(c netdev.Chain) bool { return !c.Legacy && c.Table == nftablesTable }, "", "service-", "endpoint-"},
	} {
		marked := false
		for _, c := range chains {
			if !one.is(c) {
				continue
			}
			marked = marked || one.mark == "" || c.Name == one.mark
			if isHashed(c.Name, one.service) {
				one.services++
			}
			if isHashed(c.Name, one.endpoint) {
				one.endpoints++
			}
		}
		if marked {
			all = append(all, one.proxyRules)
		}
	}
	return all
}

// isHashed says whether a name is a prefix with a hash of kube-proxy's, which is of capital
// letters and digits.
func isHashed(name, prefix string) bool {
	hash, ok := strings.CutPrefix(name, prefix)
	return ok && hash != "" && (hash[0] >= 'A' && hash[0] <= 'Z' || hash[0] >= '0' && hash[0] <= '9')
}

// rules says which rules of kube-proxy there are, and whether a kube-proxy keeps them.
func (r *Report) rules(p proxy) {
	chains, err := netdev.Chains()
	if err != nil {
		r.add(notKnown, "which rules kube-proxy has written: %s; that takes CAP_NET_ADMIN", err)
		return
	}
	found := rulesOf(chains)
	if _, err := net.InterfaceByName(ipvsDevice); err == nil {
		found = append(found, proxyRules{mode: modeIPVS})
	}
	if len(found) == 0 {
		r.ok("kube-proxy-rules", "there are none in iptables-legacy, iptables-nft, nftables and IPVS")
	}
	for _, one := range found {
		r.ruleSet(one, found, p)
	}
	r.translation(chains)
}

// ruleSet says whether one of several sets of rules is kept by a kube-proxy.
func (r *Report) ruleSet(one proxyRules, all []proxyRules, p proxy) {
	rivals := 0 // in iptables mode there are two places, and the image knows which
	for _, other := range all {
		if p.mode == "" || other.mode == one.mode {
			rivals++
		}
	}
	switch {
	case !p.runs:
		r.add(staleRules, "%s, and no kube-proxy runs here", one)
	case p.mode != "" && p.mode != one.mode:
		r.add(staleRules, "%s, and kube-proxy is in mode %s", one, p.mode)
	case rivals > 1:
		r.add(staleRules, "%s, and kube-proxy keeps either these or others", one)
	default:
		r.ok("kube-proxy-rules", "%s, kept by kube-proxy", one)
	}
}

// translation says who else translates addresses here.
func (r *Report) translation(chains []netdev.Chain) {
	var others []string
	proxys := false
	for _, c := range chains {
		name := c.Family + " " + c.Table
		if c.Legacy {
			name = "iptables-legacy " + name
		}
		switch {
		case !c.NAT:
		case c.Table == nftablesTable:
			proxys = true
		case !slices.Contains(others, name):
			others = append(others, name)
		}
	}
	switch {
	case proxys && len(others) == 0:
		r.add(lastNAT, "no table but kube-proxy's translates addresses")
	case len(others) > 0:
		r.ok("translation", "addresses are translated in %s, which stay as they are", strings.Join(others, ", "))
	}
}

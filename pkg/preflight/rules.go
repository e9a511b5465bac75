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

// Rules are those of one kube-proxy.
type Rules struct {
	Where     string `json:"where"`     // for people
	Mode      string `json:"mode"`      // of the kube-proxy that writes such
	Services  int    `json:"services"`  // chains of Services, in all families
	Endpoints int    `json:"endpoints"` // chains of endpoints
	// Stale is why no kube-proxy keeps them, "" where one does.
	Stale string `json:"stale,omitempty"`

	families map[string]bool // in which there are chains of Services
}

// Has says whether there are chains of Services of a family, IPv4 or IPv6. IPVS has none.
func (p Rules) Has(family string) bool {
	return p.Mode == modeIPVS || p.families[map[string]string{"IPv4": "ip", "IPv6": "ip6"}[family]]
}

// KeepConnections says whether connections are kept in what the rules are of, so that they
// end with it: IPVS has a table of its own, and connection tracking that of all others.
func (p Rules) KeepConnections() bool { return p.Mode == modeIPVS }

// String says what there is, and who keeps it.
func (p Rules) String() string {
	what := "device " + ipvsDevice
	if p.Mode != modeIPVS {
		what = fmt.Sprintf("%s: chains of %s", p.Where, plural(p.Services, "Service port", "Service ports"))
	}
	if p.Endpoints > 0 { // kube-proxy 1.36 has none in nftables
		what += " and " + plural(p.Endpoints, "endpoint", "endpoints")
	}
	if p.Stale != "" {
		return what + ", and " + p.Stale
	}
	return what + ", kept by kube-proxy"
}

// FindRules returns the rules of kube-proxy in the network namespace of the calling thread,
// and whether nobody else translates addresses there.
func FindRules(p KubeProxy) (rules []Rules, lastNAT bool, err error) {
	chains, err := netdev.Chains()
	if err != nil {
		return nil, false, fmt.Errorf("%w; that takes CAP_NET_ADMIN", err)
	}
	proxys, others := translators(chains)
	return findRules(chains, p), proxys && len(others) == 0, nil
}

// rulesOf returns which rules of kube-proxy are among chains.
func rulesOf(chains []netdev.Chain) (all []Rules) {
	for _, one := range []struct {
		Rules
		is                      func(netdev.Chain) bool
		mark, service, endpoint string
	}{
		{Rules{Where: "iptables-legacy", Mode: modeIPTables}, func(c netdev.Chain) bool { return c.Legacy }, "KUBE-SERVICES", "KUBE-SVC-", "KUBE-SEP-"},
		{Rules{Where: "iptables-nft", Mode: modeIPTables}, func(c netdev.Chain) bool { return !c.Legacy && c.Table == "nat" }, "KUBE-SERVICES", "KUBE-SVC-", "KUBE-SEP-"},
		{Rules{Where: "nftables", Mode: modeNFTables}, func(c netdev.Chain) bool { return !c.Legacy && c.Table == nftablesTable }, "", "service-", "endpoint-"},
	} {
		marked := false
		one.families = map[string]bool{}
		for _, c := range chains {
			if !one.is(c) {
				continue
			}
			marked = marked || one.mark == "" || c.Name == one.mark
			if isHashed(c.Name, one.service) {
				one.Services++
				one.families[c.Family] = true
			}
			if isHashed(c.Name, one.endpoint) {
				one.Endpoints++
			}
		}
		if marked {
			all = append(all, one.Rules)
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

// findRules returns the rules among chains, and whether this kube-proxy keeps each.
func findRules(chains []netdev.Chain, p KubeProxy) []Rules {
	found := rulesOf(chains)
	if _, err := net.InterfaceByName(ipvsDevice); err == nil {
		found = append(found, Rules{Mode: modeIPVS})
	}
	for i := range found {
		found[i].Stale = stale(found[i], found, p)
	}
	return found
}

// stale returns why no kube-proxy keeps one of several sets of rules, "" where one does.
func stale(one Rules, all []Rules, p KubeProxy) string {
	rivals := 0 // in iptables mode there are two places, and the image knows which
	for _, other := range all {
		if p.Mode == "" || other.Mode == one.Mode {
			rivals++
		}
	}
	switch {
	case !p.Runs:
		return "no kube-proxy runs here"
	case p.Mode != "" && p.Mode != one.Mode:
		return "kube-proxy is in mode " + p.Mode
	case rivals > 1:
		return "kube-proxy keeps either these or others"
	default:
		return ""
	}
}

// rules says which rules of kube-proxy there are, and whether a kube-proxy keeps them.
func (r *Report) rules(p KubeProxy) {
	chains, err := netdev.Chains()
	if err != nil {
		r.add(notKnown, "which rules kube-proxy has written: %s; that takes CAP_NET_ADMIN", err)
		return
	}
	found := findRules(chains, p)
	if len(found) == 0 {
		r.ok("kube-proxy-rules", "there are none in iptables-legacy, iptables-nft, nftables and IPVS")
	}
	for _, one := range found {
		if one.Stale != "" {
			r.add(staleRules, "%s", one)
		} else {
			r.ok("kube-proxy-rules", "%s", one)
		}
	}
	proxys, others := translators(chains)
	switch {
	case proxys && len(others) == 0:
		r.add(lastNAT, "no table but kube-proxy's translates addresses")
	case len(others) > 0:
		r.ok("translation", "addresses are translated in %s, which stay as they are", strings.Join(others, ", "))
	}
}

// translators returns who translates addresses here: kube-proxy's table of nftables, and the
// names of others.
func translators(chains []netdev.Chain) (proxys bool, others []string) {
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
	return proxys, others
}

package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

// IPTables returns rules for iptables-restore or ip6tables-restore: packets walk
// a list of Services. All addresses are of one family. What comes from outside of
// local is masqueraded.
func IPTables(services []Service, local netip.Prefix) string {
	var chains, dispatch, rules strings.Builder
	for i, s := range services {
		chain := fmt.Sprintf("HG-S%d", i)
		fmt.Fprintf(&chains, ":%s - [0:0]\n", chain)
		match := fmt.Sprintf("-d %s%s -p %s -m %s --dport %d", s.Addr.Addr(), bits(s.Addr.Addr()), s.Protocol, s.Protocol, s.Addr.Port())
		fmt.Fprintf(&dispatch, "-A HG-SERVICES %s -j %s\n", match, chain)
		fmt.Fprintf(&rules, "-A %s ! -s %s %s -j HG-MASQ\n", chain, local, match)
		for k, e := range s.Endpoints {
			end := fmt.Sprintf("HG-E%d-%d", i, k)
			fmt.Fprintf(&chains, ":%s - [0:0]\n", end)
			choice := ""
			if left := len(s.Endpoints) - k; left > 1 {
				choice = fmt.Sprintf(" -m statistic --mode random --probability %.10f", 1/float64(left))
			}
			fmt.Fprintf(&rules, "-A %s%s -j %s\n", chain, choice, end)
			fmt.Fprintf(&rules, "-A %s -s %s%s -j HG-MASQ\n-A %s -p %s -m %s -j DNAT --to-destination %s\n",
				end, e.Addr(), bits(e.Addr()), end, s.Protocol, s.Protocol, e)
		}
	}
	return iptablesFilter + iptablesNAT + chains.String() + dispatch.String() + rules.String() + "COMMIT\n"
}

// iptablesFilter has each new connection looked for among the Services that have
// no endpoints, of which there are none here.
const iptablesFilter = `*filter
:HG-REFUSED - [0:0]
:HG-FORWARD - [0:0]
-A INPUT -m conntrack --ctstate NEW -j HG-REFUSED
-A FORWARD -m conntrack --ctstate NEW -j HG-REFUSED
-A FORWARD -j HG-FORWARD
-A OUTPUT -m conntrack --ctstate NEW -j HG-REFUSED
-A HG-FORWARD -m conntrack --ctstate INVALID -j DROP
-A HG-FORWARD -m mark --mark ` + mark + `/` + mark + ` -j ACCEPT
-A HG-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`

const iptablesNAT = `*nat
:HG-SERVICES - [0:0]
:HG-MASQ - [0:0]
:HG-POST - [0:0]
-A PREROUTING -j HG-SERVICES
-A OUTPUT -j HG-SERVICES
-A POSTROUTING -j HG-POST
-A HG-MASQ -j MARK --set-xmark ` + mark + `/` + mark + `
-A HG-POST -m mark ! --mark ` + mark + `/` + mark + ` -j RETURN
-A HG-POST -j MARK --set-xmark ` + mark + `/0x0
-A HG-POST -j MASQUERADE --random-fully
`

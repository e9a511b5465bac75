package peer

import (
	"fmt"
	"strings"
)

// masquerade is the mark of packets that leave with the node's address.
const masquerade = "0x4000"

// iptablesRules returns rules for iptables-restore: a list of Services that
// packets walk, a chain for each that chooses, a chain for each endpoint that
// translates.
func iptablesRules(services []service) string {
	var chains, dispatch, rules strings.Builder
	for _, name := range []string{"SERVICES", "MASQ", "POST"} {
		fmt.Fprintf(&chains, ":HG-%s - [0:0]\n", name)
	}
	fmt.Fprintf(&rules, "-A PREROUTING -j HG-SERVICES\n-A OUTPUT -j HG-SERVICES\n-A POSTROUTING -j HG-POST\n")
	fmt.Fprintf(&rules, "-A HG-MASQ -j MARK --set-xmark %s/%s\n", masquerade, masquerade)
	fmt.Fprintf(&rules, "-A HG-POST -m mark ! --mark %s/%s -j RETURN\n-A HG-POST -j MARK --set-xmark %s/0x0\n-A HG-POST -j MASQUERADE --random-fully\n", masquerade, masquerade, masquerade)
	for i, s := range services {
		chain := fmt.Sprintf("HG-S%d", i)
		fmt.Fprintf(&chains, ":%s - [0:0]\n", chain)
		match := fmt.Sprintf("-d %s/32 -p %s -m %s --dport %d", s.addr.Addr(), s.protocol, s.protocol, s.addr.Port())
		fmt.Fprintf(&dispatch, "-A HG-SERVICES %s -j %s\n", match, chain)
		fmt.Fprintf(&rules, "-A %s ! -s %s %s -j HG-MASQ\n", chain, podNet, match)
		for k, e := range s.endpoints {
			end := fmt.Sprintf("HG-E%d-%d", i, k)
			fmt.Fprintf(&chains, ":%s - [0:0]\n", end)
			choice := ""
			if left := len(s.endpoints) - k; left > 1 {
				choice = fmt.Sprintf(" -m statistic --mode random --probability %.10f", 1/float64(left))
			}
			fmt.Fprintf(&rules, "-A %s%s -j %s\n", chain, choice, end)
			fmt.Fprintf(&rules, "-A %s -s %s/32 -j HG-MASQ\n-A %s -p %s -m %s -j DNAT --to-destination %s\n", end, e.Addr(), end, s.protocol, s.protocol, e)
		}
	}
	return "*filter\n:HG-FORWARD - [0:0]\n-A FORWARD -m conntrack --ctstate NEW -j HG-FORWARD\n" +
		fmt.Sprintf("-A HG-FORWARD -m mark --mark %s/%s -j ACCEPT\n", masquerade, masquerade) + "COMMIT\n" +
		"*nat\n" + chains.String() + dispatch.String() + rules.String() + "COMMIT\n"
}

// nftablesRules returns the same for nft: Services are found in a map.
func nftablesRules(services []service) string {
	var ends, chains, elements strings.Builder
	for i, s := range services {
		var choices []string
		for k, e := range s.endpoints {
			end := fmt.Sprintf("endpoint-%d-%d", i, k)
			fmt.Fprintf(&ends, "chain %s {\nip saddr %s jump mark-for-masquerade\nmeta l4proto %s dnat to %s\n}\n", end, e.Addr(), s.protocol, e)
			choices = append(choices, fmt.Sprintf("%d : goto %s", k, end))
		}
		fmt.Fprintf(&chains, "chain service-%d {\nip daddr %s %s dport %d ip saddr != %s jump mark-for-masquerade\nnumgen random mod %d vmap { %s }\n}\n",
			i, s.addr.Addr(), s.protocol, s.addr.Port(), podNet, len(s.endpoints), strings.Join(choices, ", "))
		fmt.Fprintf(&elements, "%s . %s . %d : goto service-%d,\n", s.addr.Addr(), s.protocol, s.addr.Port(), i)
	}
	return "table ip headgate-bench {\n" +
		fmt.Sprintf("chain mark-for-masquerade {\nmark set mark or %s\n}\n", masquerade) + ends.String() + chains.String() +
		"map service-ips {\ntype ipv4_addr . inet_proto . inet_service : verdict\nelements = {\n" + elements.String() + "}\n}\n" +
		"chain services {\nip daddr . meta l4proto . th dport vmap @service-ips\n}\n" +
		"chain prerouting {\ntype nat hook prerouting priority dstnat; policy accept;\njump services\n}\n" +
		"chain output {\ntype nat hook output priority -100; policy accept;\njump services\n}\n" +
		fmt.Sprintf("chain postrouting {\ntype nat hook postrouting priority srcnat; policy accept;\nmark and %s == 0 return\nmark set mark xor %s\nmasquerade fully-random\n}\n", masquerade, masquerade) +
		"}\n"
}

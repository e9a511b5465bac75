package contender

import (
	"fmt"
	"net/netip"
	"strings"
)

// Rules change as kube-proxy changes its own: the chain of a Service is written
// anew, those of endpoints come and go, all else stays.

// chains are the members of a version that have a chain, in their order.
func (v version) chains() []int {
	var list []int
	for i, m := range v.members {
		if m.is == ready && !v.deleted {
			list = append(list, i)
		}
	}
	return list
}

// without returns those of a that are not in b.
func without(a, b []int) []int {
	in := make(map[int]bool)
	for _, x := range b {
		in[x] = true
	}
	var rest []int
	for _, x := range a {
		if !in[x] {
			rest = append(rest, x)
		}
	}
	return rest
}

// nftablesFamily is what nft calls the family of an address.
func nftablesFamily(a netip.Addr) string { return map[bool]string{false: "ip", true: "ip6"}[a.Is6()] }

// nftablesTable is the table with rules of its family: see package rules.
func nftablesTable(a netip.Addr) string { return nftablesFamily(a) + " headgate-bench" }

// nftablesChange returns one transaction for nft: the Services that were before
// become those after, in the same order.
func nftablesChange(before, after []version) string {
	var b strings.Builder
	for i, v := range after {
		table, ip := nftablesTable(v.Addr.Addr()), nftablesFamily(v.Addr.Addr())
		was, is := before[i].chains(), v.chains()
		chain := fmt.Sprintf("service-%d", v.number)
		element := fmt.Sprintf("element %s service-ips { %s . %s . %d : goto %s }\n", table, v.Addr.Addr(), v.Protocol, v.Addr.Port(), chain)
		for _, k := range without(is, was) {
			end := fmt.Sprintf("endpoint-%d-%d", v.number, k)
			fmt.Fprintf(&b, "add chain %s %s\nadd rule %s %s %s saddr %s jump mark-for-masquerade\nadd rule %s %s meta l4proto %s dnat to %s\n",
				table, end, table, end, ip, v.members[k].addr.Addr(), table, end, v.Protocol, v.members[k].addr)
		}
		if before[i].deleted && !v.deleted {
			fmt.Fprintf(&b, "add chain %s %s\n", table, chain)
		}
		if v.deleted && !before[i].deleted {
			fmt.Fprintf(&b, "delete %s", element)
		}
		if !before[i].deleted {
			fmt.Fprintf(&b, "flush chain %s %s\n", table, chain)
		}
		if !v.deleted {
			choices := make([]string, len(is))
			for n, k := range is {
				choices[n] = fmt.Sprintf("%d : goto endpoint-%d-%d", n, v.number, k)
			}
			fmt.Fprintf(&b, "add rule %s %s %s daddr %s %s dport %d %s saddr != %s jump mark-for-masquerade\nadd rule %s %s numgen random mod %d vmap { %s }\n",
				table, chain, ip, v.Addr.Addr(), v.Protocol, v.Addr.Port(), ip, netsOf(v.Addr.Addr().Is6()).pods, table, chain, len(is), strings.Join(choices, ", "))
		}
		if before[i].deleted && !v.deleted {
			fmt.Fprintf(&b, "add %s", element)
		}
		if v.deleted && !before[i].deleted {
			fmt.Fprintf(&b, "delete chain %s %s\n", table, chain)
		}
		for _, k := range without(was, is) {
			fmt.Fprintf(&b, "flush chain %s endpoint-%d-%d\ndelete chain %s endpoint-%d-%d\n", table, v.number, k, table, v.number, k)
		}
	}
	return b.String()
}

// iptablesChange returns the same for iptables-restore --noflush, for which a
// chain that is named on top is an empty one.
func iptablesChange(before, after []version) string {
	var chains, rules, ends strings.Builder
	for i, v := range after {
		was, is := before[i].chains(), v.chains()
		chain := fmt.Sprintf("HG-S%d", v.number)
		match := fmt.Sprintf("-d %s/%d -p %s -m %s --dport %d", v.Addr.Addr(), v.Addr.Addr().BitLen(), v.Protocol, v.Protocol, v.Addr.Port())
		if !v.deleted || !before[i].deleted {
			fmt.Fprintf(&chains, ":%s - [0:0]\n", chain)
		}
		switch {
		case v.deleted && !before[i].deleted:
			fmt.Fprintf(&rules, "-D HG-SERVICES %s -j %s\n", match, chain)
			fmt.Fprintf(&ends, "-X %s\n", chain)
		case !v.deleted && before[i].deleted:
			fmt.Fprintf(&rules, "-A HG-SERVICES %s -j %s\n", match, chain)
		}
		if !v.deleted {
			fmt.Fprintf(&rules, "-A %s ! -s %s %s -j HG-MASQ\n", chain, netsOf(v.Addr.Addr().Is6()).pods, match)
		}
		for n, k := range is {
			end, addr := fmt.Sprintf("HG-E%d-%d", v.number, k), v.members[k].addr
			choice := ""
			if left := len(is) - n; left > 1 {
				choice = fmt.Sprintf(" -m statistic --mode random --probability %.10f", 1/float64(left))
			}
			fmt.Fprintf(&chains, ":%s - [0:0]\n", end)
			fmt.Fprintf(&rules, "-A %s%s -j %s\n", chain, choice, end)
			fmt.Fprintf(&rules, "-A %s -s %s/%d -j HG-MASQ\n-A %s -p %s -m %s -j DNAT --to-destination %s\n", end, addr.Addr(), addr.Addr().BitLen(), end, v.Protocol, v.Protocol, addr)
		}
		for _, k := range without(was, is) {
			fmt.Fprintf(&chains, ":HG-E%d-%d - [0:0]\n", v.number, k)
			fmt.Fprintf(&ends, "-X HG-E%d-%d\n", v.number, k)
		}
	}
	return "*nat\n" + chains.String() + rules.String() + ends.String() + "COMMIT\n"
}

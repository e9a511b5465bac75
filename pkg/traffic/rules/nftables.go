package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

// endpointsAtOnce is how many endpoints a transaction has, more or less: for each
// anonymous map the kernel goes through all of the transaction, so that 10,000
// Services in one take it more than a minute.
const endpointsAtOnce = 3000

// NFTables returns transactions for nft, to be given to it one after the other:
// packets find their Service in a map. All addresses are of one family. What
// comes from outside of local is masqueraded. The last transaction puts the others
// in force.
func NFTables(services []Service, local netip.Prefix) []string {
	ip := "ip"
	if local.Addr().Is6() {
		ip = "ip6"
	}
	replace := strings.NewReplacer("$IP", ip, "$TYPE", map[string]string{"ip": "ipv4_addr", "ip6": "ipv6_addr"}[ip], "$MARK", mark)
	transactions := []string{replace.Replace(nftablesMaps)}
	for i := 0; i < len(services); {
		var ends, chains, elements, refused strings.Builder
		for n := 0; i < len(services) && n < endpointsAtOnce; i++ {
			s := services[i]
			if len(s.Endpoints) == 0 {
				fmt.Fprintf(&refused, "%s . %s . %d : goto refused,\n", s.Addr.Addr(), s.Protocol, s.Addr.Port())
				continue
			}
			n += len(s.Endpoints)
			nftablesService(&ends, &chains, ip, i, s, local)
			fmt.Fprintf(&elements, "%s . %s . %d : goto service-%d,\n", s.Addr.Addr(), s.Protocol, s.Addr.Port(), i)
		}
		transactions = append(transactions, fmt.Sprintf("table %s headgate-bench {\n%s%s}\n%s%s",
			ip, ends.String(), chains.String(), nftablesElements(ip, "service-ips", &elements), nftablesElements(ip, "no-endpoint-services", &refused)))
	}
	return append(transactions, replace.Replace(nftablesHooks))
}

// nftablesElements returns what fills a map, "" if nothing does.
func nftablesElements(ip, name string, elements *strings.Builder) string {
	if elements.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("add element %s headgate-bench %s {\n%s}\n", ip, name, elements.String())
}

// nftablesService writes the chains of a Service, those of its endpoints first.
func nftablesService(ends, chains *strings.Builder, ip string, i int, s Service, local netip.Prefix) {
	choices := make([]string, len(s.Endpoints))
	for k, e := range s.Endpoints {
		end := fmt.Sprintf("endpoint-%d-%d", i, k)
		fmt.Fprintf(ends, "chain %s {\n%s saddr %s jump mark-for-masquerade\nmeta l4proto %s dnat to %s\n}\n", end, ip, e.Addr(), s.Protocol, e)
		choices[k] = fmt.Sprintf("%d : goto %s", k, end)
	}
	fmt.Fprintf(chains, "chain service-%d {\n%s daddr %s %s dport %d %s saddr != %s jump mark-for-masquerade\nnumgen random mod %d vmap { %s }\n}\n",
		i, ip, s.Addr.Addr(), s.Protocol, s.Addr.Port(), ip, local, len(choices), strings.Join(choices, ", "))
}

// nftablesMaps is what the chains of Services refer to. Of Services with source
// ranges there are none here.
const nftablesMaps = `table $IP headgate-bench {
chain mark-for-masquerade {
mark set mark or $MARK
}
chain refused {
reject
}
map service-ips {
type $TYPE . inet_proto . inet_service : verdict
}
map no-endpoint-services {
type $TYPE . inet_proto . inet_service : verdict
}
map firewall-ips {
type $TYPE . inet_proto . inet_service : verdict
}
}
`

// nftablesHooks has packets pass.
const nftablesHooks = `table $IP headgate-bench {
chain services {
$IP daddr . meta l4proto . th dport vmap @service-ips
}
chain service-endpoints-check {
$IP daddr . meta l4proto . th dport vmap @no-endpoint-services
}
chain filter-prerouting {
type filter hook prerouting priority dstnat - 10; policy accept;
ct state new $IP daddr . meta l4proto . th dport vmap @firewall-ips
}
chain filter-input {
type filter hook input priority -110; policy accept;
ct state new jump service-endpoints-check
}
chain filter-forward {
type filter hook forward priority -110; policy accept;
ct state new jump service-endpoints-check
}
chain filter-output {
type filter hook output priority -110; policy accept;
ct state new jump service-endpoints-check
}
chain nat-prerouting {
type nat hook prerouting priority dstnat; policy accept;
jump services
}
chain nat-output {
type nat hook output priority -100; policy accept;
jump services
}
chain masquerading {
mark and $MARK == 0 return
mark set mark xor $MARK
masquerade fully-random
}
chain nat-postrouting {
type nat hook postrouting priority srcnat; policy accept;
jump masquerading
}
}
`

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
)

// Rules of the shape that kube-proxy's have for an address of a load balancer
// with the policy Cluster: clients from elsewhere are masqueraded. Of many
// Services the one that is asked has chains of its own, the others share some:
// that is kind to the rules, since their chains take no room in caches.

// loadRules loads the rules on the node. Where that cannot be, the path is not
// measured.
func (p *forwardPath) loadRules() error {
	tool, text := p.rules(p)
	path, err := exec.LookPath(tool)
	if err != nil {
		p.missing = tool + " is not installed"
		return nil
	}
	args := map[string][]string{"nft": {"-f", "-"}}[tool]
	cmd := exec.CommandContext(p.b.ctx, path, args...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &said, &said
	if err := p.place.Namespace(theNode).Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		if p.b.ctx.Err() != nil {
			return p.b.ctx.Err()
		}
		p.missing = fmt.Sprintf("%s: %s", tool, firstOf(said.String(), err))
		return nil
	}
	return p.place.Namespace(theNode).Do(longerThanARun)
}

// firstOf is the first line of what a tool said, or the error.
func firstOf(said string, err error) string {
	if line, _, _ := strings.Cut(strings.TrimSpace(said), "\n"); line != "" {
		return line
	}
	return err.Error()
}

// conntrackRules only ask for the state of connections.
func conntrackRules(*forwardPath) (tool, text string) {
	return "nft", "table ip bench {\n chain forward { type filter hook forward priority filter; ct state established accept; }\n}\n"
}

// nftRules find a Service in a map of verdicts, and choose a backend by another.
func nftRules(p *forwardPath) (tool, text string) {
	var b strings.Builder
	const key = "typeof ip daddr . meta l4proto . th dport : verdict;"
	b.WriteString("table ip bench {\n chain marking { meta mark set meta mark or 0x4000; }\n chain other { jump marking; }\n")
	var picks []string
	for i := range forwardBackends {
		a := nth(serverNet4, i+1)
		fmt.Fprintf(&b, " chain backend-%d { ip saddr %s jump marking; meta l4proto { tcp, udp } dnat to %s:%d; }\n", i, a, a, backendPort)
		picks = append(picks, fmt.Sprintf("%d : goto backend-%d", i, i))
	}
	fmt.Fprintf(&b, " chain service { numgen random mod %d vmap { %s }; }\n chain external { jump marking; goto service; }\n", forwardBackends, strings.Join(picks, ", "))
	fmt.Fprintf(&b, " map services { %s elements = {\n", key)
	for i := range p.services {
		a := nth(serviceNet4, i+1)
		if i == p.asked() {
			fmt.Fprintf(&b, "%s . tcp . %d : goto external, %s . udp . %d : goto external,\n", a, servicePort, a, servicePort)
			continue
		}
		fmt.Fprintf(&b, "%s . tcp . %d : goto other,\n", a, servicePort)
	}
	b.WriteString(" } }\n")
	fmt.Fprintf(&b, " map refused { %s }\n map ranges { %s }\n", key, key)
	b.WriteString(` chain before { type filter hook prerouting priority -110; ct state new ip daddr . meta l4proto . th dport vmap @ranges; }
 chain forward { type filter hook forward priority -110; ct state new ip daddr . meta l4proto . th dport vmap @refused; }
 chain prerouting { type nat hook prerouting priority dstnat; ip daddr . meta l4proto . th dport vmap @services; }
 chain masquerading { meta mark set meta mark xor 0x4000; masquerade fully-random; }
 chain postrouting { type nat hook postrouting priority srcnat; meta mark and 0x4000 == 0x4000 jump masquerading; }
}
`)
	return "nft", b.String()
}

// iptablesRules walk the Services, one after the other.
func iptablesRules(p *forwardPath) (tool, text string) {
	var b strings.Builder
	b.WriteString("*nat\n:SERVICES -\n:MARK-MASQ -\n:AFTER -\n:OTHER -\n:EXTERNAL -\n:SERVICE -\n")
	for i := range forwardBackends {
		fmt.Fprintf(&b, ":BACKEND-%d -\n", i)
	}
	b.WriteString("-A PREROUTING -j SERVICES\n-A POSTROUTING -j AFTER\n-A MARK-MASQ -j MARK --or-mark 0x4000\n-A OTHER -j MARK-MASQ\n-A EXTERNAL -j MARK-MASQ\n-A EXTERNAL -j SERVICE\n")
	b.WriteString("-A AFTER -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A AFTER -j MARK --xor-mark 0x4000\n-A AFTER -j MASQUERADE --random-fully\n")
	for i := range forwardBackends {
		a := nth(serverNet4, i+1)
		if left := forwardBackends - i; left > 1 {
			fmt.Fprintf(&b, "-A SERVICE -m statistic --mode random --probability %.10f -j BACKEND-%d\n", 1/float64(left), i)
		} else {
			fmt.Fprintf(&b, "-A SERVICE -j BACKEND-%d\n", i)
		}
		fmt.Fprintf(&b, "-A BACKEND-%d -s %s/32 -j MARK-MASQ\n", i, a)
		for _, protocol := range []string{"tcp", "udp"} {
			fmt.Fprintf(&b, "-A BACKEND-%d -p %s -m %s -j DNAT --to-destination %s:%d\n", i, protocol, protocol, a, backendPort)
		}
	}
	for i := range p.services {
		chain, protocols := "OTHER", []string{"tcp"}
		if i == p.asked() {
			chain, protocols = "EXTERNAL", []string{"tcp", "udp"}
		}
		for _, protocol := range protocols {
			fmt.Fprintf(&b, "-A SERVICES -d %s/32 -p %s -m %s --dport %d -j %s\n", nth(serviceNet4, i+1), protocol, protocol, servicePort, chain)
		}
	}
	b.WriteString("COMMIT\n*filter\n:FORWARDING -\n:REFUSED -\n-A FORWARD -m conntrack --ctstate NEW -j REFUSED\n-A FORWARD -j FORWARDING\n")
	b.WriteString("-A FORWARDING -m conntrack --ctstate INVALID -j DROP\n-A FORWARDING -m mark --mark 0x4000/0x4000 -j ACCEPT\n-A FORWARDING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n")
	return "iptables-legacy-restore", b.String()
}

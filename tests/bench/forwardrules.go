package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/pkg/traffic/rules"
)

// loadRules loads the rules on the node. Where that cannot be, the path is not
// measured.
func (p *forwardPath) loadRules() error {
	tool, texts := p.rules(p)
	path, err := exec.LookPath(tool)
	if err != nil {
		p.missing = tool + " is not installed"
		return nil
	}
	for _, text := range texts {
		if err := p.feed(path, text, map[string][]string{"nft": {"-f", "-"}}[tool]...); err != nil || p.missing != "" {
			return err
		}
	}
	return p.topology.Namespace(theNode).Do(longerThanARun)
}

// feed gives a tool its input on the node.
func (p *forwardPath) feed(path, text string, args ...string) error {
	cmd := exec.CommandContext(p.b.ctx, path, args...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &said, &said
	if err := p.topology.Namespace(theNode).Start(cmd); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		if p.b.ctx.Err() != nil {
			return p.b.ctx.Err()
		}
		p.missing = fmt.Sprintf("%s: %s", filepath.Base(path), firstOf(said.String(), err))
	}
	return nil
}

// firstOf is the first line of what a tool said, or the error.
func firstOf(said string, err error) string {
	if line, _, _ := strings.Cut(strings.TrimSpace(said), "\n"); line != "" {
		return line
	}
	return err.Error()
}

// conntrackRules only ask for the state of connections.
func conntrackRules(*forwardPath) (tool string, texts []string) {
	return "nft", []string{"table ip bench {\n chain forward { type filter hook forward priority filter; ct state established accept; }\n}\n"}
}

// podNet4 is where rules take addresses to be of pods: no client is one.
var podNet4 = netip.PrefixFrom(serverNet4, 16)

// nftRules and iptablesRules are those that contenders of a scenario have, too.
func nftRules(p *forwardPath) (tool string, texts []string) {
	return "nft", rules.NFTables(p.ruled(), podNet4)
}

func iptablesRules(p *forwardPath) (tool string, texts []string) {
	return "iptables-legacy-restore", []string{rules.IPTables(p.ruled(), podNet4)}
}

// ruled are the Services: the asked one has all backends, over TCP and UDP, every
// other one an endpoint of its own.
func (p *forwardPath) ruled() []rules.Service {
	var all []rules.Service
	for i := range p.services {
		s := rules.Service{Protocol: "tcp", Addr: netip.AddrPortFrom(nth(serviceNet4, i+1), servicePort)}
		if i != p.asked() {
			s.Endpoints = []netip.AddrPort{netip.AddrPortFrom(nth(backendNet4, i+1), backendPort)}
			all = append(all, s)
			continue
		}
		for k := range forwardBackends {
			s.Endpoints = append(s.Endpoints, netip.AddrPortFrom(nth(serverNet4, k+1), backendPort))
		}
		udp := s
		udp.Protocol = "udp"
		all = append(all, s, udp)
	}
	return all
}

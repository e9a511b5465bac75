package netdev

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Chain is a chain of rules of the kernel's packet filter.
type Chain struct {
	Legacy bool   // of iptables-legacy, else of nftables, where iptables-nft has its chains
	Family string // ip, ip6, inet, arp, bridge or netdev
	Table  string
	Name   string
	Hooked bool // packets come to it by themselves
	NAT    bool // and their addresses are translated there
}

// Chains returns the chains of nftables, and those that translate addresses of
// iptables-legacy, in the network namespace of the calling thread. Parts of the kernel that
// nobody has used so far are not asked, since that would load them.
func Chains() ([]Chain, error) {
	all, err := dump(nftChains)
	if err != nil {
		return nil, fmt.Errorf("list the chains of nftables: %w", err)
	}
	for _, f := range []xtFamily{xtIP4, xtIP6} {
		legacy, err := f.chains()
		if err != nil {
			return nil, fmt.Errorf("list the chains of iptables-legacy: %w", err)
		}
		all = append(all, legacy...)
	}
	return all, nil
}

// families are the names of NFPROTO_….
var families = map[byte]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet", unix.NFPROTO_ARP: "arp", unix.NFPROTO_BRIDGE: "bridge", unix.NFPROTO_NETDEV: "netdev"}

func nftChains() ([]Chain, error) {
	if !isInKernel("nf_tables_getchain") {
		return nil, nil
	}
	const subsystem = unix.NFNL_SUBSYS_NFTABLES << 8
	q := nl.NewNetlinkRequest(subsystem|unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP)
	q.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_UNSPEC, Version: nl.NFNETLINK_V0})
	answers, err := q.Execute(unix.NETLINK_NETFILTER, subsystem|unix.NFT_MSG_NEWCHAIN)
	var all []Chain
	for _, a := range answers {
		c, parseErr := parseChain(a)
		if parseErr != nil {
			return nil, parseErr
		}
		all = append(all, c)
	}
	return all, err
}

func parseChain(message []byte) (Chain, error) {
	if len(message) < nl.SizeofNfgenmsg {
		return Chain{}, fmt.Errorf("a message of %d bytes", len(message))
	}
	attrs, err := nl.ParseRouteAttr(message[nl.SizeofNfgenmsg:])
	c := Chain{Family: families[message[0]]}
	for _, a := range attrs {
		text := unix.ByteSliceToString(a.Value)
		switch a.Attr.Type & nl.NLA_TYPE_MASK {
		case unix.NFTA_CHAIN_TABLE:
			c.Table = text
		case unix.NFTA_CHAIN_NAME:
			c.Name = text
		case unix.NFTA_CHAIN_HOOK:
			c.Hooked = true
		case unix.NFTA_CHAIN_TYPE:
			c.NAT = text == "nat"
		}
	}
	return c, err
}

// isInKernel says whether the kernel, with the modules that are loaded, has a function.
// Where it does not tell its functions it is taken to have it.
func isInKernel(function string) bool {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return true
	}
	defer f.Close()
	lines, told := bufio.NewScanner(f), false
	for lines.Scan() {
		told = true
		if _, rest, _ := bytes.Cut(lines.Bytes(), []byte(" ")); bytes.HasPrefix(rest[min(2, len(rest)):], []byte(function)) {
			return true
		}
	}
	return !told
}

// xtables reads /proc/net/ip_tables_names and its like, which are there once a table is.
func xtables(file string) ([]string, error) {
	text, err := os.ReadFile("/proc/thread-self/net/" + file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}

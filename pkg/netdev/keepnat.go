package netdev

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// NATTable is the table of family inet that keeps translation going.
const NATTable = "headgate-keep-nat"

// KeepNAT has the kernel go on with the translation of connections that it tracks, whoever's
// rules began it. The kernel translates and tracks only while some rules need it, and ends
// with the last of them: so one chain is made in which packets begin to be translated, with
// a rule that reads the state of a connection and does nothing. The name of the chain says
// since when. A second call does nothing.
func KeepNAT() error {
	if kept, _, err := KeepsNAT(); kept || err != nil {
		return err
	}
	name := nl.ZeroTerminated(sincePrefix + strconv.FormatInt(time.Now().Unix(), 10))
	table := nftMessage(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, nl.NewRtAttr(unix.NFTA_TABLE_NAME, nl.ZeroTerminated(NATTable)))
	hook := nl.NewRtAttr(unix.NLA_F_NESTED|unix.NFTA_CHAIN_HOOK, nil)
	hook.AddRtAttr(unix.NFTA_HOOK_HOOKNUM, nl.BEUint32Attr(unix.NF_INET_PRE_ROUTING))
	const natPriority = -100
	hook.AddRtAttr(unix.NFTA_HOOK_PRIORITY, nl.BEUint32Attr(0xffffffff&(1<<32+natPriority)))
	chain := nftMessage(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE,
		nl.NewRtAttr(unix.NFTA_CHAIN_TABLE, nl.ZeroTerminated(NATTable)), nl.NewRtAttr(unix.NFTA_CHAIN_NAME, name),
		hook, nl.NewRtAttr(unix.NFTA_CHAIN_TYPE, nl.ZeroTerminated("nat")))
	expressions := nl.NewRtAttr(unix.NLA_F_NESTED|unix.NFTA_RULE_EXPRESSIONS, nil)
	expression := expressions.AddRtAttr(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, nil)
	expression.AddRtAttr(unix.NFTA_EXPR_NAME, nl.ZeroTerminated("ct"))
	reads := expression.AddRtAttr(unix.NLA_F_NESTED|unix.NFTA_EXPR_DATA, nil)
	reads.AddRtAttr(unix.NFTA_CT_DREG, nl.BEUint32Attr(unix.NFT_REG_1))
	reads.AddRtAttr(unix.NFTA_CT_KEY, nl.BEUint32Attr(unix.NFT_CT_STATE))
	rule := nftMessage(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND,
		nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(NATTable)), nl.NewRtAttr(unix.NFTA_RULE_CHAIN, name), expressions)
	if err := nftTransaction(table, chain, rule); err != nil {
		return fmt.Errorf("make table inet %s of nftables: %w", NATTable, err)
	}
	return nil
}

// KeepsNAT says whether KeepNAT has been called, and DropNAT has not, and since when, to a
// second: the zero time where that is not known.
func KeepsNAT() (kept bool, since time.Time, err error) {
	chains, err := Chains()
	for _, c := range chains {
		if !c.Legacy && c.Family == "inet" && c.Table == NATTable {
			return true, sinceOf(c.Name), nil
		}
	}
	return false, time.Time{}, err
}

// sincePrefix begins the name of the chain, before seconds since 1970.
const sincePrefix = "since-"

// sinceOf returns the time in the name of a chain, the zero time where there is none.
func sinceOf(chain string) time.Time {
	text, ok := strings.CutPrefix(chain, sincePrefix)
	seconds, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// DropNAT takes back KeepNAT.
func DropNAT() error {
	if kept, _, err := KeepsNAT(); !kept || err != nil {
		return err
	}
	err := nftTransaction(nftMessage(unix.NFT_MSG_DELTABLE, 0, nl.NewRtAttr(unix.NFTA_TABLE_NAME, nl.ZeroTerminated(NATTable))))
	if err != nil {
		return fmt.Errorf("delete table inet %s of nftables: %w", NATTable, err)
	}
	return nil
}

// nftMessage is one of a transaction of nftables, of family inet.
func nftMessage(kind, flags int, attrs ...nl.NetlinkRequestData) *nl.NetlinkRequest {
	q := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags|unix.NLM_F_ACK)
	q.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_INET, Version: nl.NFNETLINK_V0})
	for _, a := range attrs {
		q.AddData(a)
	}
	return q
}

// nftTransaction has the kernel do what messages say, all of it or nothing.
func nftTransaction(messages ...*nl.NetlinkRequest) error {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.SetReceiveTimeout(&unix.Timeval{Sec: 5}); err != nil { // the kernel answers at once
		return err
	}
	batch := nftEdge(unix.NFNL_MSG_BATCH_BEGIN)
	for _, m := range messages {
		batch = append(batch, m.Serialize()...)
	}
	batch = append(batch, nftEdge(unix.NFNL_MSG_BATCH_END)...)
	if err := unix.Sendto(s.GetFd(), batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for answered := 0; answered < len(messages); {
		answers, _, err := s.Receive()
		if err != nil {
			return err
		}
		for _, a := range answers {
			if a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 {
				continue
			}
			answered++
			if code := int32(binary.NativeEndian.Uint32(a.Data)); code != 0 {
				return unix.Errno(-code)
			}
		}
	}
	return nil
}

// nftEdge begins or ends a transaction.
func nftEdge(kind int) []byte {
	q := nl.NewNetlinkRequest(kind, 0)
	q.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0, ResId: nl.Swap16(unix.NFNL_SUBSYS_NFTABLES)})
	return q.Serialize()
}

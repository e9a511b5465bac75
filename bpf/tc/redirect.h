/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A packet of a flow whose backend is on another node need not go through the
 * stack: where the kernel knows the next hop, it leaves at once by its device. The
 * program there gives it the address of the device, and what comes back goes
 * the same way.
 *
 * Flows with a pod of this node go through the stack: its answers do anyway, and
 * a filter that sees half of a connection takes it for invalid. So does whatever
 * is out of the ordinary.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#include "../abi/maps.h"
#include "../lib/csum.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"
#include "packet.h"
#include "passage.h"

#define IP4_PLAIN_LEN 20
#define IP6_PLAIN_LEN 40
#define TCP_LEN_OFF 12

/*
 * The length of the packet as it will be on the wire, in bytes without the link
 * header; the one of a segment where the device is to cut it. 0 if cut short.
 */
static __always_inline __u32 wire_len(struct __sk_buff *skb,
				      const struct packet *pkt)
{
	__u32 len = pkt->l4_off - pkt->l3_off;
	__u8 words;

	if (!skb->gso_size)
		return skb->len - pkt->l3_off;
	if (pkt->l4_proto != IPPROTO_TCP)
		return len + 8 + skb->gso_size;
	if (bpf_skb_load_bytes(skb, pkt->l4_off + TCP_LEN_OFF, &words, 1))
		return 0;
	return len + (words >> 4) * 4 + skb->gso_size;
}

/* Asks the kernel for the next hop: BPF_FIB_LKUP_RET_…, below 0 for an error. */
static __always_inline long find_hop(struct __sk_buff *skb,
				     const struct packet *pkt,
				     struct bpf_fib_lookup *hop)
{
	__u32 len = wire_len(skb, pkt);

	if (!len || len > 0xffff)
		return -1;
	hop->tot_len = len;
	hop->ifindex = skb->ifindex;
	hop->l4_protocol = pkt->l4_proto;
	hop->sport = pkt->tuple.src_port;
	hop->dport = pkt->tuple.dst_port;
	if (pkt->ip4) {
		hop->family = AF_INET;
		hop->ipv4_src = pkt->tuple.src.word[3];
		hop->ipv4_dst = pkt->tuple.dst.word[3];
	} else {
		hop->family = AF_INET6;
		__builtin_memcpy(hop->ipv6_src, &pkt->tuple.src, 16);
		__builtin_memcpy(hop->ipv6_dst, &pkt->tuple.dst, 16);
	}
	return bpf_fib_lookup(skb, hop, sizeof(*hop), 0);
}

/* Takes one off the hops that a packet still has; false if that was the last. */
static __always_inline bool count_hop4(struct __sk_buff *skb)
{
	struct iphdr *ip = (void *)(long)skb->data + ETH_HLEN;
	__u16 *word = (void *)&ip->ttl, was; /* with the protocol */

	if ((void *)(ip + 1) > (void *)(long)skb->data_end || ip->ttl <= 1)
		return false;
	was = *word;
	ip->ttl--;
	ip->check = ~sum_fold(sum_replace((__u16)~ip->check, was, *word));
	return true;
}

/* The header of IPv6 has no checksum; a sum of the packet may have to change. */
static __always_inline bool count_hop6(struct __sk_buff *skb)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	__u16 *word = (void *)&ip->nexthdr, was; /* with the hop limit */

	if ((void *)(ip + 1) > (void *)(long)skb->data_end ||
	    ip->hop_limit <= 1)
		return false;
	was = *word;
	ip->hop_limit--;
	bpf_csum_update(skb, sum_replace(0, was, *word));
	return true;
}

/* Writes the addresses of the Ethernet header, which no sum of the packet covers. */
static __always_inline bool write_both_macs(struct __sk_buff *skb,
					    const __u8 *macs)
{
	struct ethhdr *eth = (void *)(long)skb->data;

	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return false;
	__builtin_memcpy(eth, macs, 2 * ETH_ALEN);
	return true;
}

/* The same to a next hop, which has them the other way round. */
static __always_inline bool write_macs(struct __sk_buff *skb,
				       const struct bpf_fib_lookup *hop)
{
	__u8 macs[2 * ETH_ALEN];

	__builtin_memcpy(macs, hop->dmac, ETH_ALEN);
	__builtin_memcpy(macs + ETH_ALEN, hop->smac, ETH_ALEN);
	return write_both_macs(skb, macs);
}

/*
 * The device by which flows may leave without the stack, NULL if this is none: it must
 * give them its address.
 */
static __always_inline const struct device *way_out(__u32 ifindex)
{
	const struct device *d = bpf_map_lookup_elem(&devices, &ifindex);

	return d && !(d->flags & (DEVICE_POD | DEVICE_L3)) ? d : NULL;
}

/*
 * Sends a packet to a next hop whose hardware address is yet to be found: the
 * stack would find it as well, but of a connection it must see all or nothing.
 */
static __always_inline int send_and_ask(const struct bpf_fib_lookup *hop)
{
	struct bpf_redir_neigh next = { .nh_family = hop->family };

	__builtin_memcpy(next.ipv6_nh, hop->ipv6_dst, sizeof(next.ipv6_nh));
	return bpf_redirect_neigh(hop->ifindex, &next, sizeof(next), 0);
}

/* Sends a rewritten packet to its next hop, or on through the stack. */
GLOBAL_FUNC int send_on(struct __sk_buff *skb, struct packet *pkt)
{
	struct bpf_fib_lookup hop = {};
	const struct device *out;
	long found;

	if (!pkt || pkt->fragment || pkt->more_fragments || skb->vlan_present ||
	    pkt->l3_off != ETH_HLEN)
		return TC_ACT_UNSPEC;
	if (pkt->l4_off - pkt->l3_off !=
	    (pkt->ip4 ? IP4_PLAIN_LEN : IP6_PLAIN_LEN))
		return TC_ACT_UNSPEC;
	found = find_hop(skb, pkt, &hop);
	if (found != BPF_FIB_LKUP_RET_SUCCESS &&
	    found != BPF_FIB_LKUP_RET_NO_NEIGH)
		return TC_ACT_UNSPEC;
	out = way_out(hop.ifindex);
	if (!out || !(pkt->ip4 ? count_hop4(skb) : count_hop6(skb)))
		return TC_ACT_UNSPEC;
	count(flow_redirected);
	if (found == BPF_FIB_LKUP_RET_NO_NEIGH)
		return send_and_ask(&hop);
	if (!write_macs(skb, &hop))
		return TC_ACT_SHOT;
	if (express_sets && (repeats_at_tc || out->flags & DEVICE_XDP))
		passage_leaves(out, hop.ifindex, hop.mtu_result);
	return bpf_redirect(hop.ifindex, 0);
}

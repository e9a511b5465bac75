/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is forged: at the way out, IP in IP with a packet for a Service that no node has put there.
 * Homes that take IP in IP take it from the address of a node, and whatever a pod sends may get that.
 * UDP needs no look: no pod knows the cookie of an outer header.
 *
 * What this node carries has come in by a device on which others reach it, as the kernel says of
 * each packet until it has left, and so has what it passes on as a router of others. What pods send
 * has come by theirs. What the node itself sends has come by none: it is trusted with whom it sends
 * to but for its peers, to whom it says nothing of the kind.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/addr.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"
#include "carry.h"
#include "classify.h"
#include "packet.h"
#include "parse.h"

/* Has a packet come in by a device on which others reach the node? */
static __always_inline bool came_from_elsewhere(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ingress_ifindex;
	struct device *d = ifindex ? bpf_map_lookup_elem(&devices, &ifindex) :
				     NULL;

	return d && !(d->flags & DEVICE_POD);
}

/* Is a packet that leaves to be looked at? */
static __always_inline bool may_be_forged(const struct packet *pkt)
{
	return carrying && !pkt->pod && pkt->tuple.hook == HOOK_OUT &&
	       (pkt->l4_proto == IPPROTO_IPIP || pkt->l4_proto == IPPROTO_IPV6);
}

/* Where does an inner packet go? False if it is none: homes go by the protocol, too. */
static __always_inline bool load_inner_end(struct __sk_buff *skb,
					   const struct packet *pkt,
					   struct ip_addr *to)
{
	struct ipv6hdr h6;
	struct iphdr h4;

	if (pkt->l4_proto == IPPROTO_IPIP) {
		if (bpf_skb_load_bytes(skb, pkt->l4_off, &h4, sizeof(h4)))
			return false;
		*to = from_ip4(h4.daddr);
		return true;
	}
	if (bpf_skb_load_bytes(skb, pkt->l4_off, &h6, sizeof(h6)))
		return false;
	*to = from_ip6(&h6.daddr);
	return true;
}

/*
 * Is a packet that leaves one that a home would take for carried, and that nobody has? Questions the
 * node may ask by itself, and a Service may have its address.
 */
GLOBAL_FUNC int is_forged(struct __sk_buff *skb, struct packet *pkt)
{
	struct ip_addr dst, to;
	bool question;

	if (!pkt || pkt->fragment || came_from_elsewhere(skb))
		return 0;
	dst = pkt->tuple.dst;
	if (!skb->ingress_ifindex &&
	    !bpf_map_lookup_elem(&peer_addresses, &dst))
		return 0;
	if (!load_inner_end(skb, pkt, &to))
		return 0;
	question = same_addr(&to, &pkt->tuple.src);
	if (!skb->ingress_ifindex)
		return !question && is_service_address(&to);
	return question || is_own_address(&to) || is_service_address(&to);
}

/* Drops what is forged: TC_ACT_UNSPEC where a packet goes on. */
static __always_inline int drop_forged(struct __sk_buff *skb,
				       struct packet *pkt)
{
	if (!may_be_forged(pkt) || !is_forged(skb, pkt))
		return TC_ACT_UNSPEC;
	count(carry_forged);
	return TC_ACT_SHOT;
}

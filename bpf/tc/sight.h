/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * First sight: most packets of a node have nothing to do with a Service, which their ends
 * say. Only these are read of them, into registers, and nothing is written.
 */
#pragma once

#include <linux/if_ether.h>

#include "../lib/addr.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "forged.h"
#include "packet.h"
#include "parse.h"
#include "turned.h"

static __always_inline bool is_tcp_or_udp(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;
}

static __always_inline bool read_ends4(const struct plain_ip4 *h,
				       const void *data_end, struct tuple *t)
{
	if ((void *)(h + 1) > data_end || !is_whole4(&h->ip) ||
	    !is_tcp_or_udp(h->ip.protocol))
		return false;
	t->src = from_ip4(h->ip.saddr);
	t->dst = from_ip4(h->ip.daddr);
	t->src_port = h->ports.src;
	t->dst_port = h->ports.dst;
	return true;
}

static __always_inline bool read_ends6(const struct plain_ip6 *h,
				       const void *data_end, struct tuple *t)
{
	if ((void *)(h + 1) > data_end || !is_tcp_or_udp(h->ip.nexthdr))
		return false;
	t->src = from_ip6(&h->ip.saddr);
	t->dst = from_ip6(&h->ip.daddr);
	t->src_port = h->ports.src;
	t->dst_port = h->ports.dst;
	return !is_ip4(&t->src) && !is_ip4(&t->dst);
}

/* Reads the ends of a packet; false if it is none of those that most are. */
static __always_inline bool read_ends(struct __sk_buff *skb, struct tuple *t,
				      __u32 l3_off)
{
	void *data_end = (void *)(long)skb->data_end;
	void *l3 = (void *)(long)skb->data + l3_off;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		return read_ends4(l3, data_end, t);
	return skb->protocol == bpf_htons(ETH_P_IPV6) &&
	       read_ends6(l3, data_end, t);
}

/*
 * What the ends of a packet say: it passes, begins a flow if anything becomes of it
 * (VERDICT_BEGIN), passes unless it is forged or turns back (VERDICT_OUTER), or may have a flow. So may every
 * packet that is not as most are.
 */
static __always_inline enum verdict at_first_sight(struct __sk_buff *skb,
						   enum hook hook, __u32 l3_off)
{
	struct tuple t = { .hook = hook };

	if (!read_ends(skb, &t, l3_off) || is_martian(&t) || may_have_flow(&t))
		return VERDICT_FOLLOW;
	if (may_be_balanced(&t))
		return VERDICT_BEGIN;
	return hook == HOOK_OUT && (turns_back(skb) ||
				    may_be_forged_to(skb, t.dst_port)) ?
		       VERDICT_OUTER :
		       VERDICT_PASS;
}

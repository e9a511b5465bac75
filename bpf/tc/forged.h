/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is forged: at the way out, a packet for a Service in an outer header that no node has put
 * there. Homes ask for a proof, which a pod may learn from an ICMP error that quotes one. Whatever a
 * pod sends may get the address of its node.
 *
 * What this node carries has come in by a device on which others reach it, as the kernel says of
 * each packet until it has left, and so has what it passes on as a router of others. What pods send
 * has come by theirs. What the node itself sends has come by none: it is trusted with whom it sends
 * to but for its peers, to whom it says nothing of the kind.
 */
#pragma once

#include <linux/pkt_cls.h>

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/addr.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "packet.h"
#include "parse.h"
#include "uncover.h"

/* Has a packet come in by a device on which others reach the node? */
static __always_inline bool came_from_elsewhere(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ingress_ifindex;
	struct device *d = ifindex ? bpf_map_lookup_elem(&devices, &ifindex) :
				     NULL;

	return d && !(d->flags & DEVICE_POD);
}

/*
 * Is a packet of UDP that leaves, to a port, to be looked at? Most of what is carried leaves by the
 * device that it came by.
 */
static __always_inline bool may_be_forged_to(struct __sk_buff *skb, __be16 port)
{
	return carrying && port == bpf_htons(carry_port) &&
	       skb->ingress_ifindex != skb->ifindex;
}

/* Is a packet that leaves to be looked at? The ports of what is not plain are yet to be read. */
static __always_inline bool may_be_forged(struct __sk_buff *skb,
					  const struct packet *pkt)
{
	if (!carrying || pkt->pod || pkt->tuple.hook != HOOK_OUT)
		return false;
	if (pkt->plain)
		return pkt->l4_proto == IPPROTO_UDP &&
		       may_be_forged_to(skb, pkt->tuple.dst_port);
	return pkt->l4_proto == IPPROTO_UDP;
}

/* The packets that may be in outer headers: a device may be yet to cut one of UDP into many. */
struct inner_packets {
	struct __sk_buff *skb;
	const struct packet *pkt;
	__u32 first; /* where in the frame the first one begins */
	__u32 apart; /* and each other one, behind the one before */
	bool from_node;
	bool forged;
};

/* Reads the destination of an inner packet; false if there is none. */
static __always_inline bool load_inner_dst(const struct inner_packets *in,
					   __u32 inner, struct ip_addr *dst)
{
	struct ipv6hdr h6;
	struct iphdr h4;

	if (bpf_skb_load_bytes(in->skb, inner, &h4, sizeof(h4)))
		return false;
	*dst = from_ip4(h4.daddr);
	if (h4.version == 4)
		return true;
	if (h4.version != 6 ||
	    bpf_skb_load_bytes(in->skb, inner, &h6, sizeof(h6)))
		return false;
	*dst = from_ip6(&h6.daddr);
	return true;
}

/*
 * Is an inner packet for a Service, or a question of this node? Those the node may ask by itself,
 * and a Service may have its address.
 */
static long look_at_inner(__u32 i, void *data)
{
	struct inner_packets *in = data;
	struct ip_addr dst;

	if (!load_inner_dst(in, in->first + i * in->apart, &dst))
		return 0;
	if (same_addr(&dst, &in->pkt->tuple.src))
		in->forged = !in->from_node;
	else
		in->forged = is_service_address(&dst) ||
			     (!in->from_node && is_own_address(&dst));
	return in->forged;
}

/* How many packets a device makes of one; none has room for an inner one where they are short. */
static __always_inline __u32 inner_count(struct __sk_buff *skb, __u32 first)
{
	__u32 apart = skb->gso_size;

	if (!apart || skb->len <= first)
		return 1;
	return apart < sizeof(struct iphdr) ?
		       0 :
		       (skb->len - first - 1) / apart + 1;
}

/* Is a packet that leaves one that a home would take for carried, and that nobody has? */
GLOBAL_FUNC int is_forged(struct __sk_buff *skb, struct packet *pkt)
{
	struct inner_packets in = { .skb = skb, .pkt = pkt };
	struct ip_addr dst;
	__u32 count = 1;

	if (!pkt || pkt->fragment || came_from_elsewhere(skb))
		return 0;
	dst = pkt->tuple.dst;
	in.from_node = !skb->ingress_ifindex;
	if (in.from_node && !bpf_map_lookup_elem(&peer_addresses, &dst))
		return 0;
	if (!pkt->plain && (!parse_ports(skb, pkt) ||
			    pkt->tuple.dst_port != bpf_htons(carry_port)))
		return 0;
	in.first = pkt->l4_off + sizeof(struct proof_udp);
	in.apart = skb->gso_size;
	count = inner_count(skb, in.first);
	bpf_loop(count, look_at_inner, &in, 0);
	return in.forged;
}

/* Drops what is forged: TC_ACT_UNSPEC where a packet goes on. */
static __always_inline int drop_forged(struct __sk_buff *skb,
				       struct packet *pkt)
{
	if (!may_be_forged(skb, pkt) || !is_forged(skb, pkt))
		return TC_ACT_UNSPEC;
	count(carry_forged);
	return TC_ACT_SHOT;
}

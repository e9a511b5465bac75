/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packets that turn back: they are for an address of a Service or of a service CIDR, have no frontend,
 * and leave for a router by the device that they came by. Routers send such packets to nodes, and a node
 * sends what it does not have to its router: the packet goes to and fro until its time to live ends.
 *
 * TCP gets a reset there, everything else is dropped, an echo request too. What leaves by another device,
 * or without a router, goes on: the address may be another node's, since some load balancers are nodes.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lb/frontend.h"
#include "../lib/addr.h"
#include "../lib/filter.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "packet.h"
#include "redirect.h"
#include "refuse.h"

/* Does a packet leave by the device that it came by? In a VRF it came by the device of that. */
static __always_inline bool turns_back(struct __sk_buff *skb)
{
	return skb->ingress_ifindex == skb->ifindex;
}

/* Does a packet leave for a router? */
static __always_inline bool leaves_for_router(struct __sk_buff *skb,
					      const struct packet *pkt)
{
	struct bpf_fib_lookup hop = {};
	struct ip_addr next;
	long found = find_hop(skb, pkt, &hop);

	if (found != BPF_FIB_LKUP_RET_SUCCESS &&
	    found != BPF_FIB_LKUP_RET_NO_NEIGH)
		return false;
	if (hop.family == AF_INET)
		next = from_ip4(hop.ipv4_dst);
	else
		__builtin_memcpy(&next, hop.ipv6_dst, sizeof(next));
	return !same_addr(&next, &pkt->tuple.dst);
}

/*
 * May what is for an address turn back? It may be of a Service and a node to which this one carries:
 * what is carried leaves by the device that it came by.
 */
static __always_inline bool may_turn_back(const struct ip_addr *to)
{
	struct ip_addr key = *to;

	return (in_service_cidr(to) ||
		(address_filter_has(to) && is_service_address(to))) &&
	       !(carrying && bpf_map_lookup_elem(&peer_addresses, &key));
}

/*
 * Refuses a packet that turns back. A device that leads to pods, too, is left out: by it a pod may
 * speak to another load balancer at the same address. Not inlined, for the stack of the caller.
 */
static __noinline enum verdict refuse_turned(struct __sk_buff *skb,
					     const struct packet *pkt)
{
	__u32 ifindex = skb->ifindex;
	const struct device *d;

	if (pkt->tuple.hook != HOOK_OUT || pkt->pod || pkt->rewritten ||
	    !turns_back(skb) || !may_turn_back(&pkt->tuple.dst))
		return VERDICT_PASS;
	d = bpf_map_lookup_elem(&devices, &ifindex);
	if (!d || d->flags & DEVICE_SHARED || !leaves_for_router(skb, pkt))
		return VERDICT_PASS;
	refuse_packet(pkt, DROP_NO_SERVICE_PORT, 0);
	return pkt->l4_proto == IPPROTO_TCP ? VERDICT_RESET : VERDICT_REFUSE;
}

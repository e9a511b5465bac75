/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packets that turn back: they are for an address of a Service or of a service CIDR, have no frontend,
 * and leave by the device that they came by. Routers send such packets to nodes, and a node sends what it does not
 * have to its router: the packet goes to and fro until its time to live ends.
 *
 * TCP gets a reset there, everything else is dropped, an echo request too. What leaves by another device
 * goes on: the address may be another node's, since some load balancers are nodes.
 */
#pragma once

#include "../abi/maps.h"
#include "../lb/frontend.h"
#include "../lib/addr.h"
#include "../lib/filter.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "packet.h"

/* Does a packet leave by the device that it came by? In a VRF it came by the device of that. */
static __always_inline bool turns_back(struct __sk_buff *skb)
{
	return skb->ingress_ifindex == skb->ifindex;
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
	    !turns_back(skb) ||
	    !(in_service_cidr(&pkt->tuple.dst) ||
	      is_service_address(&pkt->tuple.dst)))
		return VERDICT_PASS;
	d = bpf_map_lookup_elem(&devices, &ifindex);
	if (!d || d->flags & DEVICE_SHARED)
		return VERDICT_PASS;
	refuse(DROP_NO_SERVICE_PORT, 0);
	return pkt->l4_proto == IPPROTO_TCP ? VERDICT_RESET : VERDICT_REFUSE;
}

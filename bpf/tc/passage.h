/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A packet that one device sends on at once meets the program of the other within the
 * same call, on the same CPU. So it is known there what it was when it came, what it is
 * when it leaves, and its next hop: that is the express entry of its flow, see
 * flow/express.h.
 */
#pragma once

#include <linux/if_ether.h>

#include "../abi/maps.h"
#include "../flow/express.h"
#include "../flow/table.h"
#include "../lib/csum.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "conntrack.h"
#include "packet.h"

/*
 * When the flow was noted that a packet follows, if others may follow it and nobody asks,
 * until it is to be noted again; 0 if not. Had it a backend that a Service has lost
 * meanwhile, it was noted before. Says where the flow is, too.
 */
static __always_inline __u32 repeats_since(const struct packet *pkt,
					   __u32 *place)
{
	__u64 now_ns = coarse_now();
	struct found f;

	if (pkt->tcp_flags & TCP_ENDS || !find_flow(&pkt->tuple, &f) ||
	    !leads_to(f.flow, &pkt->to) || !is_checked(f.seen, now_ns) ||
	    (f.seen & (FLOW_SEEN | FLOW_HALF_OPEN | FLOW_CLOSING | FLOW_BROKEN |
		       FLOW_REFUSED)) != FLOW_SEEN)
		return 0;
	*place = f.place;
	return noted_at(f.seen, now_ns);
}

/* Notes a packet that comes in, and is about to become another. */
static __always_inline void note_arrival(const struct packet *pkt,
					 struct passage *p)
{
	p->epoch = current_epoch();
	p->came = pkt->tuple;
	p->now = pkt->to;
	p->noted = repeats_since(pkt, &p->counts_at);
	p->ifindex = 0;
	p->repeated = 0; /* the one before it may never have left */
}

/* A packet leaves by a device whose driver can repeat that. */
static __always_inline void passage_leaves(const struct device *out,
					   __u32 ifindex, __u32 mtu)
{
	struct passage *p = this_passage();

	if (!p)
		return;
	p->mtu = mtu;
	p->ifindex = ifindex;
	p->turns_at = turning(out, ifindex);
}

/*
 * Is a packet that goes out, and is about to become another, the one that came in just
 * now? A flow is to be noted again when the direction is that was noted first.
 */
static __always_inline void note_departure(const struct packet *pkt,
					   struct passage *p)
{
	__u32 place, noted = repeats_since(pkt, &place);

	p->repeats = noted && p->noted && p->ifindex == pkt->ifindex &&
		     same_tuple(&p->now, &pkt->tuple);
	if (elapsed_ticks(p->noted, noted))
		p->noted = noted;
	p->ifindex = 0;
}

/* Notes a packet that is about to become another, at either of the two devices. */
GLOBAL_FUNC int note_passage(const struct packet *pkt)
{
	struct passage *p = this_passage();

	if (!pkt || !p)
		return 0;
	if (pkt->tuple.hook == HOOK_IN)
		note_arrival(pkt, p);
	else
		note_departure(pkt, p);
	return 0;
}

/* Makes the express entry of a packet that leaves with its Ethernet header. */
GLOBAL_FUNC int add_express(struct __sk_buff *skb, struct packet *pkt)
{
	void *data = (void *)(long)skb->data;
	struct passage *p = this_passage();
	struct express *e;

	if (!pkt || !p || !p->repeats ||
	    data + ETH_HLEN > (void *)(long)skb->data_end)
		return 0;
	p->repeats = 0;
	e = express_place(&p->came);
	if (!e)
		return 0;
	e->came = p->came;
	e->leaves = pkt->tuple;
	__builtin_memcpy(e->macs, data, sizeof(e->macs));
	e->ifindex = pkt->ifindex;
	e->epoch = p->epoch;
	e->noted = p->noted;
	e->mtu = p->mtu;
	e->turns_at = p->turns_at;
	e->counts_at = p->counts_at;
	e->l4_diff = sum_fold(tuple_diff(&p->came, &pkt->tuple));
	e->ip_diff = sum_fold(addr_diff(&p->came, &pkt->tuple));
	return 0;
}

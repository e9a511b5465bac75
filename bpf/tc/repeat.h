/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What TC repeats of its own decisions, where no driver does (--redirect without --xdp).
 * A packet that follows in a flow through the node becomes at once, where it comes, what both
 * devices made of the one before, and leaves by the next hop of that: what stands in its
 * express entry, see flow/express.h. So one of two look-ups of its flow, and that of the
 * route, are done once a second.
 *
 * The program of the device where it leaves meets it within the same call, and lets it pass.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../flow/express.h"
#include "../lib/verdict.h"
#include "nat.h"
#include "packet.h"
#include "redirect.h"

/* Notes for the program of the other device what is about to leave by it. */
static __always_inline void note_repeated(struct passage *p,
					  const struct express *e)
{
	p->now = e->leaves;
	p->ifindex = e->ifindex;
	p->noted = 0;
	p->repeated = 1;
}

/*
 * Has a packet that leaves become all that it is to be where it came? One for which that
 * was noted and which never left is no reason to pass another.
 */
static __always_inline bool was_repeated(const struct packet *pkt)
{
	struct passage *p = this_passage();

	if (!p || !p->repeated)
		return false;
	p->repeated = 0;
	return p->ifindex == pkt->ifindex && same_tuple(&p->now, &pkt->tuple);
}

/* Writes what an entry says, a router further on; false if nothing was written. */
static __always_inline bool write_repeated(struct __sk_buff *skb,
					   struct packet *pkt,
					   const struct express *e)
{
	pkt->to = e->leaves;
	if (!rewrite_both_ends(skb, pkt))
		return false;
	/* What is plain and has two hops left takes both. */
	if (pkt->ip4)
		count_hop4(skb);
	else
		count_hop6(skb);
	write_both_macs(skb, e->macs);
	return true;
}

/*
 * Sends a packet as the one before it in its flow (TC_ACT_REDIRECT), or leaves it as it is
 * for those who decide (TC_ACT_UNSPEC).
 */
GLOBAL_FUNC int repeat_here(struct __sk_buff *skb, struct packet *pkt)
{
	struct passage *p = this_passage();
	struct express *e;

	if (!pkt || !p || pkt->l3_off != ETH_HLEN || pkt->hops <= 1 ||
	    skb->vlan_present)
		return TC_ACT_UNSPEC;
	e = express_to_repeat(&pkt->tuple, pkt->tcp_flags & TCP_ENDS);
	if (!e || wire_len(skb, pkt) - 1 >= e->mtu ||
	    !write_repeated(skb, pkt, e))
		return TC_ACT_UNSPEC;
	note_repeated(p, e);
	count_repeated(e, payload_len(pkt));
	return bpf_redirect(e->ifindex, 0);
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What every packet goes through at a device, whichever it is, in and out. */
#pragma once

#include <linux/pkt_cls.h>

#include "../abi/config.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"
#include "balance.h"
#include "classify.h"
#include "echo.h"
#include "flow.h"
#include "forged.h"
#include "fragment.h"
#include "home.h"
#include "icmp.h"
#include "mss.h"
#include "nat.h"
#include "new_flow.h"
#include "outside.h"
#include "packet.h"
#include "parse.h"
#include "passage.h"
#include "refuse.h"
#include "repeat.h"
#include "reset.h"
#include "sight.h"
#include "too_long.h"
#include "tracked.h"
#include "turned.h"

#define VLAN_ID_MASK 0xfff /* of vlan_tci, IEEE 802.1Q */

/* Where programs of devices see packets. */
struct point {
	enum hook hook;
	bool pod;     /* the device of a pod */
	__u32 l3_off; /* where packets begin in its frames */
};

/* May a packet become what the one before it became, without a decision? */
static __always_inline bool may_be_repeated(const struct packet *pkt,
					    struct point at)
{
	return repeats_at_tc && at.l3_off && !at.pod && pkt->plain &&
	       !pkt->flowless;
}

/*
 * Reads a packet of which the first sight says that it may be one of ours; false if it is of no
 * kind that can be.
 */
static __always_inline bool read_packet(struct __sk_buff *skb,
					struct packet *pkt, struct point at,
					enum verdict sight)
{
	__u32 l3_off = at.l3_off, kind;

	__builtin_memset(pkt, 0, sizeof(*pkt));
	pkt->tuple.hook = at.hook;
	pkt->pod = at.pod;
	pkt->flowless = sight == VERDICT_BEGIN;
	pkt->ifindex = skb->ifindex;
	pkt->end = skb->len;
	if (read_plain((void *)(long)skb->data, (void *)(long)skb->data_end,
		       skb->protocol, pkt, l3_off) ||
	    is_read(pkt))
		return true;
	kind = skip_vlan_tags(skb, &l3_off);
	return parse(skb, pkt, l3_off, kind);
}

/*
 * Does a packet belong to a VLAN device, whose programs see it as well? Priority tags (VLAN 0)
 * belong to none.
 */
static __always_inline bool is_of_vlan_device(const struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	const struct device *d;

	if (!skb->vlan_present || !(skb->vlan_tci & VLAN_ID_MASK))
		return false;
	d = bpf_map_lookup_elem(&devices, &ifindex);
	return d && d->flags & DEVICE_TRUNK;
}

/*
 * Does a packet need no decision? Then *next is what follows: a question of a peer is answered,
 * what nobody may send, or what is forged, is dropped, and what is repeated is sent, or passes where it leaves.
 */
static __always_inline bool is_done(struct __sk_buff *skb, struct packet *pkt,
				    struct point at, int *next)
{
	*next = at.hook == HOOK_OUT ? drop_forged(skb, pkt) :
				      take_carried(skb, pkt);
	if (*next != TC_ACT_UNSPEC)
		return true;
	if (is_martian(&pkt->tuple)) {
		refuse_packet(pkt, DROP_MARTIAN, 0);
		*next = TC_ACT_SHOT;
		return true;
	}
	if (!may_be_repeated(pkt, at))
		return false;
	if (at.hook == HOOK_OUT)
		return was_repeated(pkt);
	*next = repeat_here(skb, pkt);
	return *next != TC_ACT_UNSPEC;
}

/* So many ports of a new flow may be those of others. */
#define OTHERS_TRIES 8

/*
 * Takes back a flow that a packet has begun, and refuses it as where all ports are taken. Not
 * inlined, for the stack of the caller.
 */
static __noinline enum verdict refuse_begun(const struct packet *pkt)
{
	struct new_flow *flow = begun_flow();

	unbegin(pkt);
	return flow ? refuse_flow(pkt, flow, FLOW_EXISTS, true) :
		      VERDICT_REFUSE;
}

/*
 * Lets others have their packets: a flow that has just begun gets another source port if the
 * kernel knows somebody who had its port before.
 */
static __always_inline enum verdict
spare_others(struct __sk_buff *skb, struct packet *pkt, enum verdict v)
{
#pragma nounroll
	for (int i = 0; v == VERDICT_REWRITE && pkt->begun; i++) {
		if (!takes_from_others(skb, pkt))
			break;
		if (i == OTHERS_TRIES)
			return refuse_begun(pkt);
		v = begin_anew(pkt);
	}
	return v;
}

/* What becomes of a packet: once its ports are known, that is decided without its frame. */
static __always_inline enum verdict reach_verdict(struct __sk_buff *skb,
						  struct packet *pkt)
{
	enum verdict v = VERDICT_CONTINUE;

	if (!pkt->plain)
		v = is_icmp_error(skb, pkt) ? translate_error(skb, pkt) :
					      find_ports(skb, pkt);
	if (v == VERDICT_CONTINUE)
		v = decide(pkt);
	if (carrying && v == VERDICT_ABOUT)
		v = find_home_of_error(pkt);
	if (carrying && v == VERDICT_OUTSIDE)
		v = to_outside(pkt);
	if (v == VERDICT_ASK) {
		pkt->untracked = !is_of_others(skb, pkt);
		v = pkt->untracked ? decide(pkt) : VERDICT_PASS;
	}
	if (v == VERDICT_PASS)
		return refuse_turned(skb, pkt);
	return spare_others(skb, pkt, v);
}

/* Does what is decided. */
static __always_inline int apply_verdict(struct __sk_buff *skb,
					 struct packet *pkt, enum verdict v)
{
	if (express_sets && v == VERDICT_REWRITE)
		note_passage(pkt);
	if (v == VERDICT_REWRITE)
		v = rewrite(skb, pkt) ? VERDICT_PASS : VERDICT_REFUSE;
	if (v == VERDICT_RESET)
		return reset(skb, pkt);
	if (carrying && v == VERDICT_CARRY)
		return carry(skb, pkt);
	if (carrying && v != VERDICT_REFUSE && pkt->carried && !pkt->rewritten)
		return refuse_packet(pkt, DROP_CARRIED, 0), TC_ACT_SHOT;
	if (carrying && tells_mss(pkt))
		clamp_mss(skb, pkt);
	return v == VERDICT_REFUSE ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/*
 * A packet is read, what becomes of it is decided, and that is done. Programs of others
 * that come after see the result: ours only ever decides to drop. Of a packet that is
 * none of ours *pkt says just that it is as it was.
 */
static __always_inline int handle_packet(struct __sk_buff *skb,
					 struct packet *pkt, struct point at)
{
	enum verdict sight = at_first_sight(skb, at.hook, at.l3_off);
	int next;

	pkt->rewritten = false;
	if (sight == VERDICT_PASS || is_of_vlan_device(skb) ||
	    !read_packet(skb, pkt, at, sight))
		return TC_ACT_UNSPEC;
	if (is_done(skb, pkt, at, &next))
		return next;
	return apply_verdict(skb, pkt,
			     sight == VERDICT_OUTER ? refuse_turned(skb, pkt) :
						      reach_verdict(skb, pkt));
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Carrying packets: the outer header comes where a packet of a client came in, and goes
 * (uncover.h) where it comes to the home of its backend, on the device before the stack. There
 * it is what any packet of a client is, so no device is needed, no setting, and the client is
 * where the filters of reverse paths look for it.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../carry/outer.h"
#include "../carry/ring.h"
#include "../carry/way.h"
#include "../flow/express.h"
#include "../flow/table.h"
#include "../lb/frontend.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "../lib/told.h"
#include "../lib/verdict.h"
#include "carried.h"
#include "classify.h"
#include "outer.h"
#include "packet.h"
#include "parse.h"
#include "redirect.h"
#include "refuse.h"

/*
 * Makes a packet ready to be carried to a peer, whole or in pieces, and says what its outer header
 * does; false if it cannot be.
 */
static __always_inline bool prepare(struct __sk_buff *skb,
				    const struct packet *pkt,
				    const struct peer *p, struct outer *o,
				    bool piece)
{
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return false;
	if (!(pkt->ip4 ? count_hop4(skb) : count_hop6(skb)))
		return false;
	*o = outer_of(pkt, p, read_tos(skb, pkt->ip4));
	return p->flags & PEER_OUTSIDE || prove_here(skb, o, piece);
}

/* Asks the kernel for the next hop to a peer: BPF_FIB_LKUP_RET_…, below 0 for an error. */
static __always_inline long find_way(struct __sk_buff *skb,
				     const struct peer *p,
				     struct bpf_fib_lookup *hop)
{
	aim_at(p, skb->ifindex, hop);
	return bpf_fib_lookup(skb, hop, sizeof(*hop), 0);
}

/*
 * Notes by which next hop packets go to a peer that come by a device. The epoch is from before the
 * kernel was asked.
 */
static __always_inline void note_way(__u32 peer, __u32 came_by,
				     const struct bpf_fib_lookup *hop,
				     __u32 epoch)
{
	const struct device *out = way_out(hop->ifindex);
	struct peer_way *w = way_place(peer, came_by);

	if (!w)
		return;
	w->came_by = came_by;
	w->ifindex = hop->ifindex;
	__builtin_memcpy(w->macs, hop->dmac, ETH_ALEN);
	__builtin_memcpy((void *)w->macs + ETH_ALEN, hop->smac, ETH_ALEN);
	w->mtu = hop->mtu_result;
	w->driven = out && out->flags & DEVICE_XDP;
	w->turns = out && turning(out, hop->ifindex);
	w->epoch = epoch;
	w->noted = flow_time(coarse_now());
}

/*
 * Asks the kernel by which next hop a peer is reached, and notes that: BPF_FIB_LKUP_RET_…, below 0
 * for an error. Where its hardware address is yet to be found the packet goes there already. Not
 * inlined: it is rare, and callers have no stack to spare.
 */
static __noinline long ask_way(struct __sk_buff *skb, __u32 peer,
			       const struct peer *p)
{
	__u32 epoch = current_epoch();
	struct bpf_fib_lookup hop = {};
	long found = find_way(skb, p, &hop);

	if (found == BPF_FIB_LKUP_RET_SUCCESS)
		note_way(peer, skb->ifindex, &hop, epoch);
	else if (found == BPF_FIB_LKUP_RET_NO_NEIGH)
		send_and_ask(&hop);
	return found;
}

/* What becomes of a packet whose next hop the kernel does not say. */
static __always_inline int without_way(const struct packet *pkt, long found)
{
	if (found == BPF_FIB_LKUP_RET_NO_NEIGH)
		return TC_ACT_REDIRECT;
	refuse_packet(pkt,
		      found == BPF_FIB_LKUP_RET_FRAG_NEEDED ? DROP_TOO_LONG :
							      DROP_CARRIED,
		      0);
	return TC_ACT_SHOT;
}

/*
 * Gives a carried packet the addresses of the next hop to a peer. Returns that, or NULL: then
 * *verdict is what the program is to return.
 */
static __always_inline const struct peer_way *
go_by_way(struct __sk_buff *skb, const struct packet *pkt, const struct peer *p,
	  int *verdict)
{
	const struct peer_way *w = known_way(pkt->home, skb->ifindex);
	struct ethhdr *eth;
	long found;

	*verdict = TC_ACT_SHOT;
	if (!w || (!skb->gso_size && skb->len - ETH_HLEN > w->mtu)) {
		found = ask_way(skb, pkt->home, p);
		if (found) {
			*verdict = without_way(pkt, found);
			return NULL;
		}
		w = way_place(pkt->home, skb->ifindex);
	}
	eth = (void *)(long)skb->data;
	if (!w || (void *)(eth + 1) > (void *)(long)skb->data_end)
		return NULL;
	write_way(eth, w);
	return w;
}

/* Is a packet longer than what a peer gets? */
static __always_inline bool is_too_long(struct __sk_buff *skb,
					const struct packet *pkt,
					const struct peer *p)
{
	return most_of(p) && wire_len(skb, pkt) > most_of(p);
}

/*
 * May segments that a device is to cut get shorter, so that there is room for an outer
 * header? Not where they would have been too long without one.
 */
static __always_inline bool may_shrink(struct __sk_buff *skb,
				       const struct packet *pkt,
				       const struct peer *p)
{
	return skb->gso_size && pkt->l4_proto == IPPROTO_TCP &&
	       wire_len(skb, pkt) <= p->mtu;
}

/*
 * Tells of a packet that may begin a connection, which has no flow here, if somebody looks. Not
 * inlined, for the stack of the caller.
 */
static __noinline int tell_carried(const struct packet *pkt,
				   const struct peer *p)
{
	struct told_packets *t;
	struct told_packet *told;

	if (!is_traced())
		return 0;
	t = told_in(&driver_told);
	told = t ? begin_to_tell(t, &pkt->tuple, pkt->ifindex) : NULL;
	if (!told)
		return 0;
	told->verdict = TOLD_CARRIED_BY_TC;
	told->leaves.src = p->ours;
	told->leaves.dst = p->theirs;
	end_telling(t, told);
	return 0;
}

/*
 * Carries a packet that is not too long, or whose segments may shrink, and returns what the
 * program is to return.
 */
static __always_inline int carry_whole(struct __sk_buff *skb,
				       const struct packet *pkt,
				       const struct peer *p, bool shrink)
{
	const struct peer_way *w;
	struct outer o;
	int verdict;

	if (!prepare(skb, pkt, p, &o, false) ||
	    !put_outer(skb, pkt, &o, shrink))
		return refuse_packet(pkt, DROP_CARRIED, 0), TC_ACT_SHOT;
	note_carried(pkt, skb->len - ETH_HLEN);
	w = go_by_way(skb, pkt, p, &verdict);
	if (w)
		verdict = bpf_redirect(w->ifindex, 0);
	if (verdict == TC_ACT_REDIRECT && may_begin(pkt) &&
	    !(p->flags & PEER_OUTSIDE))
		tell_carried(pkt, p);
	return verdict;
}

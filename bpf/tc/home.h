/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where does a packet for a carried frontend go? A keyed hash that all nodes share names a
 * slot, the slot a backend, and the backend its home. What begins goes there. A packet
 * within a connection that nobody on its way has known goes on around the ring of the
 * homes of the owners of the slot, see carry/ring.h. The node where packets come in keeps
 * nothing, unless the backend is outside and passes nothing on, see tc/outside.h.
 */
#pragma once

#include <linux/if_ether.h>

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../carry/ring.h"
#include "../flow/table.h"
#include "../lb/algorithm.h"
#include "../lb/client.h"
#include "../lb/frontend.h"
#include "../lb/table.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "conntrack.h"
#include "flow.h"
#include "kept.h"
#include "outside.h"
#include "packet.h"
#include "recover.h"
#include "refuse.h"
#include "restore.h"

/* What begins is sent on so often while tables differ. */
#define BEGIN_TRIES 3

/* A slot has been as it is for so many seconds when all nodes know it. */
#define SETTLED_S 5

/* Are packets of a client elsewhere to a frontend carried? */
static __always_inline bool is_carried(const struct packet *pkt,
				       const struct frontend *f)
{
	return carrying && f && f->flags & FRONTEND_CARRIED && !pkt->pod;
}

/* A packet is carried on: one that came to this node so has been to one home more. */
static __always_inline enum verdict carry_to(struct packet *pkt, __u32 home,
					     __u32 tried)
{
	pkt->home = home;
	pkt->tried = tried;
	return VERDICT_CARRY;
}

/*
 * What begins goes to the home of the backend that its slot names, and lives there: where
 * that is another one than this node thinks, it is sent on. While tables differ for longer
 * it is dropped, and comes again: anywhere else it would not be found. What cannot be carried
 * from where it came in goes by the address of this node, as if nothing were carried.
 */
static __always_inline enum verdict begin_at_home(struct packet *pkt,
						  const struct frontend *f,
						  __u32 slot,
						  struct new_flow *flow)
{
	__u32 id = slot_at(slot), home = home_for(pkt, id);

	if (home == HOME_HERE) {
		flow->backend_id = id;
		return VERDICT_CONTINUE;
	}
	if (pkt->carried && pkt->tried < BEGIN_TRIES && is_usable(home))
		return carry_to(pkt, home, pkt->tried + 1);
	return pkt->carried ? refuse_packet(pkt, DROP_NO_FLOW, f->service) :
			      VERDICT_CONTINUE;
}

/* For so long after a slot has changed datagrams may be of a flow at a former owner. */
#define DATAGRAM_ASKS_S 3600

/*
 * May a former owner of a slot have the flow of a datagram? That does not say whether it
 * begins one: it goes around the ring, and what comes back begins.
 */
static __always_inline bool may_go_on(const struct packet *pkt, __u32 slot,
				      __u64 now_ns)
{
	const struct slot_change *change;

	if (pkt->l4_proto == IPPROTO_TCP)
		return false;
	change = change_of(slot);
	return change &&
	       elapsed(now_ns, change->at_ns) < DATAGRAM_ASKS_S * NSEC_PER_SEC;
}

/* Has a slot named what it names for as long as nodes need to learn of it? */
static __always_inline bool is_settled(__u32 slot, __u64 now_ns)
{
	struct slot_change *change = bpf_map_lookup_elem(&slot_changes, &slot);

	return !change ||
	       elapsed(now_ns, change->at_ns) >= SETTLED_S * NSEC_PER_SEC;
}

/*
 * Each stray, a packet within a connection that nobody has, makes a frame to each node with an
 * owner of its slot. It comes back to where it set out, so that a node knows of how many it asks
 * in vain: with more than these within a second it asks nobody until that is over.
 */
#define STRAYS_PER_SECOND 10000

static __always_inline struct stray_budget *own_stray_budget(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&stray_budgets, &zero);
}

static __always_inline bool may_ask_others(__u64 now_ns)
{
	struct stray_budget *b = own_stray_budget();

	return !b || b->strays < STRAYS_PER_SECOND ||
	       elapsed(now_ns, b->since_ns) >= NSEC_PER_SEC;
}

/* CPUs that begin a second at once forget some of each other's strays. */
static __always_inline void note_stray(__u64 now_ns)
{
	struct stray_budget *b = own_stray_budget();

	if (!b)
		return;
	if (elapsed(now_ns, b->since_ns) >= NSEC_PER_SEC) {
		b->since_ns = now_ns;
		b->strays = 0;
	}
	__sync_fetch_and_add(&b->strays, 1);
}

/*
 * Nobody knows the connection of a packet. It is reset only where that is certain; a
 * client sends again, and tables agree by then.
 */
static __always_inline enum verdict known_to_nobody(const struct packet *pkt,
						    const struct frontend *f,
						    __u32 slot, __u64 now_ns)
{
	note_stray(now_ns);
	if (home_of(slot_at(slot)) == HOME_HERE && is_settled(slot, now_ns))
		return refuse_midstream(pkt, f->service);
	return refuse_packet(pkt, DROP_NO_FLOW, f->service);
}

/* Has a packet been to all homes but those that are left out? */
static __always_inline bool is_around(const struct packet *pkt,
				      const struct ring *ring)
{
	return !ring->next || pkt->tried + ring->passed > ring->others;
}

/*
 * What becomes of a packet where a slot has had no other home, as far as this node knows? Its
 * connection goes on by the hash, unless another node knows of more homes: then this one is yet to
 * learn of a change, and the connection may live elsewhere.
 */
static __always_inline enum verdict
nobody_else(const struct packet *pkt, const struct frontend *f, __u32 home)
{
	if (home < FIRST_PEER && !pkt->tried && !pkt->round)
		return VERDICT_CONTINUE;
	return refuse_packet(pkt, DROP_NO_FLOW, f->service);
}

/* Does nobody know the connection of a packet but, maybe, homes that were left out? */
static __always_inline bool goes_around_again(const struct packet *pkt,
					      const struct ring *ring)
{
	return pkt->round == ROUND_PASSED && is_around(pkt, ring);
}

/* A packet goes around once more, from the home of its slot on. Nobody is left out. */
static __always_inline enum verdict go_around_again(struct packet *pkt,
						    __u32 slot, __u32 home)
{
	struct ring ring = {};

	pkt->round = ROUND_LAST;
	if (find_peer(home))
		return carry_to(pkt, home, 0);
	look_around(slot, 0, &ring);
	return carry_to(pkt, ring.next, 1);
}

/*
 * A packet within a TCP connection that this node does not know, or one that may be within a
 * flow. Where it came in it goes to the home of what the slot names, and from there around
 * the ring: so many others, and back to the first one, in case that was none of them.
 */
static __always_inline enum verdict go_on_at_home(struct packet *pkt,
						  const struct frontend *f,
						  __u32 slot,
						  struct new_flow *flow)
{
	bool starts = may_start(pkt);
	__u32 home = home_for(pkt, slot_at(slot));
	struct choice choice = {};
	struct ring ring = {};

	look_around(slot, pkt->round == ROUND_LAST ? 0 : PEER_SILENT, &ring);
	if (ring.passed)
		pkt->round = ROUND_PASSED;
	if (starts &&
	    ((is_around(pkt, &ring) && !goes_around_again(pkt, &ring)) ||
	     (!pkt->carried && home != HOME_HERE)))
		return begin_at_home(pkt, f, slot, flow);
	if (find_by_reply(pkt, f, &choice)) {
		flow->backend_id = starts ? choice.id : 0;
		return VERDICT_CONTINUE;
	}
	if (!ring.others)
		return nobody_else(pkt, f, home);
	if (!starts && !may_ask_others(flow->now_ns)) {
		count(strays_limited);
		return refuse_packet(pkt, DROP_NO_FLOW, f->service);
	}
	if (goes_around_again(pkt, &ring))
		return go_around_again(pkt, slot, home);
	if (!is_around(pkt, &ring))
		return carry_to(pkt, ring.next, pkt->tried + ring.passed + 1);
	return known_to_nobody(pkt, f, slot, flow->now_ns);
}

/*
 * May a packet get an outer header as it came in? Others, with tags of VLANs or without an
 * Ethernet header, go by the address of this node.
 */
static __always_inline bool can_be_carried(const struct packet *pkt)
{
	return pkt->carried || pkt->l3_off == ETH_HLEN;
}

/*
 * Has a frontend a slot for a packet that all nodes would choose, and may the client use
 * it? Then it is *slot.
 */
static __always_inline bool
has_common_slot(const struct packet *pkt, const struct frontend *f, __u32 *slot)
{
	struct client client = {
		.addr = &pkt->tuple.src,
		.dst = &pkt->tuple.dst,
		.port = pkt->tuple.src_port,
	};
	struct view view;

	if (!is_carried(pkt, f) || is_link_local(&pkt->tuple.src) ||
	    !is_allowed(f, &pkt->tuple.src) || is_from_frontend(&pkt->tuple, f))
		return false;
	view = read_view(&f->views[VIEW_EXTERNAL]);
	if (!table_of(view).size || !is_hashed(view))
		return false;
	*slot = choose_slot(view, &client);
	return true;
}

/* The frontend that a packet names, or NULL: mostly it is at just its address. */
static __always_inline const struct frontend *
frontend_named(const struct packet *pkt)
{
	struct addr_port at = {
		.addr = pkt->tuple.dst,
		.port = pkt->tuple.dst_port,
		.protocol = pkt->tuple.protocol,
	};
	const struct frontend *f = frontend_at(&at);

	return f ? f :
		   frontend_of(&pkt->tuple.dst, pkt->tuple.dst_port,
			       pkt->tuple.protocol);
}

/*
 * Is a packet for a carried frontend, and carried (VERDICT_CARRY, VERDICT_OUTSIDE)? Any other
 * goes on as if nothing were carried (VERDICT_CONTINUE); flow->backend_id is whom a connection gets that
 * begins here, or 0 for whomever it would get anyway.
 */
GLOBAL_FUNC int find_home(struct packet *pkt, struct new_flow *flow)
{
	const struct frontend *f;
	__u32 slot, home;

	if (!pkt || !flow || is_discarded(pkt))
		return VERDICT_CONTINUE;
	f = frontend_named(pkt);
	if (!can_be_carried(pkt) || !has_common_slot(pkt, f, &slot))
		return VERDICT_CONTINUE;
	if (ends_here(
		    pkt)) /* the stack says so, about the packet that came in */
		return VERDICT_PASS;
	home = home_for(pkt, slot_at(slot));
	if (is_outside(home)) {
		pkt->slot = slot;
		return VERDICT_OUTSIDE;
	}
	if (!pkt->carried && is_usable(home)) /* as xdp/carry.h does */
		return carry_to(pkt, home, 0);
	if (may_start(pkt) && !may_go_on(pkt, slot, flow->now_ns))
		return begin_at_home(pkt, f, slot, flow);
	return go_on_at_home(pkt, f, slot, flow);
}

/*
 * Where does an ICMP error go that is about a packet of a flow which this node does not know?
 * Routers on the way of answers send it to the address of the Service, and that is
 * everywhere: around the ring, as a packet of the flow.
 */
GLOBAL_FUNC int find_home_of_error(struct packet *pkt)
{
	struct new_flow *flow = empty_flow();
	struct found kept;
	enum verdict v;

	if (!pkt || !flow)
		return VERDICT_PASS;
	pkt->to = pkt->tuple;
	if (find_flow(&pkt->tuple, &kept) && is_kept(kept.seen) &&
	    becomes(&pkt->to, kept.flow, tag_of(flow_hash(&pkt->tuple))))
		return carry_kept(pkt, &kept);
	flow->now_ns = coarse_now();
	v = find_home(pkt, flow);
	return v == VERDICT_RESET ? VERDICT_REFUSE : v;
}

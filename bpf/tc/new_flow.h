/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flows begin, at any hook: both ways are added. */
#pragma once

#include "../abi/maps.h"
#include "../lib/filter.h"
#include "../lib/verdict.h"
#include "conntrack.h"
#include "first_reply.h"
#include "flow.h"
#include "half_open.h"
#include "packet.h"
#include "recover.h"
#include "snat.h"

static __always_inline struct flow *empty_flow(void)
{
	__u32 zero = 0;
	struct flow *flow = bpf_map_lookup_elem(&flow_scratch, &zero);

	if (flow)
		__builtin_memset(flow, 0, sizeof(*flow));
	return flow;
}

/*
 * Does a packet begin a flow? One in a TCP connection goes on with a way back that
 * is there, or without one if the backend was remembered for another reason.
 */
static __always_inline bool begins(const struct packet *pkt,
				   const struct flow *way)
{
	return may_begin(pkt) ||
	       (way->flags & (FLOW_TO_BACKEND | FLOW_SEEN)) == FLOW_TO_BACKEND;
}

/*
 * Gives back what was taken for a flow that another CPU has begun meanwhile: what is
 * in flight, and the way back, unless both chose the same. Not inlined, for the
 * stack of the caller.
 */
static __noinline int give_back(const struct tuple *at, struct flow *way)
{
	struct tuple key = *at;
	struct flow *begun = bpf_map_lookup_elem(&conntrack, &key);

	flow_closed(way);
	if (begun && same_tuple(&begun->to, &way->to))
		return 0;
	other_key(&key, &way->to, at->hook);
	bpf_map_delete_elem(&conntrack, &key);
	return 0;
}

/* What leads back from a flow that a packet begins. */
static __always_inline void make_back(struct flow *back, const struct flow *way,
				      const struct packet *pkt)
{
	*back = *way;
	other_key(&back->to, &pkt->tuple, pkt->tuple.hook);
	back->flags &= FLOW_DIRECT | FLOW_SEEN | FLOW_UNSENT;
	if (way->flags & FLOW_TO_BACKEND)
		back->flags |= FLOW_BACK;
	if (pkt->pod)
		back->flags |= FLOW_FROM_POD;
}

/*
 * Gives a half-open flow a slot of the ring. Only once the flow is added: a packet
 * that follows the flow of another CPU needs none.
 */
static __always_inline void give_ring_slot(const struct tuple *key)
{
	__u32 slot = take_ring_slot(key);
	struct flow *flow = bpf_map_lookup_elem(&conntrack, key);

	if (flow)
		flow->ring_slot = slot;
}

/*
 * Adds both ways of a new flow. way->to is what its first packet becomes, which
 * the caller is to rewrite; its source port may change. A flow of a pod keeps its
 * source, since the way back is by the device of the pod wherever the backend is.
 * Of two CPUs that begin the same flow the one that adds the way there first wins,
 * and the packet of the other follows (VERDICT_FOLLOW).
 */
STEP int begin_flow(struct packet *pkt, struct flow *way)
{
	struct flow back;
	struct tuple key;
	enum hook hook;

	if (!pkt || !way)
		return VERDICT_PASS;
	key = pkt->tuple;
	hook = other_hook(key.hook);
	way->last_seen_ns = bpf_ktime_get_coarse_ns();
	make_back(&back, way, pkt);
	if (!add_way_back(&way->to, hook, &back, begins(pkt, way))) {
		note_unsent(pkt);
		return begins(pkt, way) ?
			       refuse(DROP_SNAT_EXHAUSTED, way->service) :
			       refuse_lost(way->service);
	}
	know_end(&key.dst, key.dst_port);
	if (key.hook == HOOK_IN)
		know_end(&way->to.dst, way->to.dst_port);
	else
		know_end(&way->to.src, way->to.src_port);
	if (!(way->flags & FLOW_SEEN)) {
		way->flags |= FLOW_HALF_OPEN;
		way->ring_slot = NO_RING_SLOT;
	}
	flow_opened(way);
	back = *way; /* Linux 6.1 takes no value from a caller's memory */
	if (bpf_map_update_elem(&conntrack, &key, &back, BPF_NOEXIST)) {
		give_back(&key, way);
		return VERDICT_FOLLOW;
	}
	if (back.flags & FLOW_HALF_OPEN)
		give_ring_slot(&key);
	count(flow_made);
	return VERDICT_CONTINUE;
}

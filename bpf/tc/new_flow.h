/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flows begin, at any hook: both directions are added. */
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
 * Does a packet begin a flow? One within a TCP connection goes on with the reply
 * direction that is there, or without one if the backend was found otherwise.
 */
static __always_inline bool begins(const struct packet *pkt,
				   const struct flow *flow)
{
	return may_begin(pkt) ||
	       (flow->flags & (FLOW_TO_BACKEND | FLOW_SEEN)) == FLOW_TO_BACKEND;
}

/*
 * Gives back what was taken for a flow that another CPU has begun meanwhile: what is
 * in flight, and the reply direction, unless both chose the same. Not inlined, for
 * the stack of the caller.
 */
static __noinline int give_back(const struct tuple *at, struct flow *flow)
{
	struct tuple key = *at;
	struct flow *begun = bpf_map_lookup_elem(&conntrack, &key);

	flow_closed(flow);
	if (begun && same_tuple(&begun->to, &flow->to))
		return 0;
	other_key(&key, &flow->to, at->hook);
	bpf_map_delete_elem(&conntrack, &key);
	return 0;
}

/* The reply direction of a flow that a packet begins. */
static __always_inline void make_reply(struct flow *reply,
				       const struct flow *flow,
				       const struct packet *pkt)
{
	*reply = *flow;
	other_key(&reply->to, &pkt->tuple, pkt->tuple.hook);
	reply->flags &= FLOW_BYPASS | FLOW_SEEN | FLOW_UNSENT;
	if (flow->flags & FLOW_TO_BACKEND)
		reply->flags |= FLOW_REPLY;
	if (pkt->pod)
		reply->flags |= FLOW_FROM_POD;
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
 * Adds both directions of a new flow. flow->to is what its first packet becomes, which
 * the caller is to rewrite; its source port may change. A flow of a pod keeps its
 * source, since replies leave by the device of the pod wherever the backend is. Of two
 * CPUs that begin the same flow the one that adds the original direction first wins,
 * and the packet of the other follows (VERDICT_FOLLOW).
 */
GLOBAL_FUNC int begin_flow(struct packet *pkt, struct flow *flow)
{
	struct flow entry;
	struct tuple key;
	enum hook hook;

	if (!pkt || !flow)
		return VERDICT_PASS;
	key = pkt->tuple;
	hook = other_hook(key.hook);
	flow->last_seen_ns = bpf_ktime_get_coarse_ns();
	make_reply(&entry, flow, pkt);
	if (!add_reply(&flow->to, hook, &entry, begins(pkt, flow))) {
		note_unsent(pkt);
		return begins(pkt, flow) ?
			       refuse(DROP_SNAT_EXHAUSTED, flow->service) :
			       refuse_midstream(flow->service);
	}
	flow_filter_add(&key.dst, key.dst_port);
	if (key.hook == HOOK_IN)
		flow_filter_add(&flow->to.dst, flow->to.dst_port);
	else
		flow_filter_add(&flow->to.src, flow->to.src_port);
	if (!(flow->flags & FLOW_SEEN)) {
		flow->flags |= FLOW_HALF_OPEN;
		flow->ring_slot = NO_RING_SLOT;
	}
	flow_opened(flow);
	entry = *flow; /* Linux 6.1 takes no value from a caller's memory */
	if (bpf_map_update_elem(&conntrack, &key, &entry, BPF_NOEXIST)) {
		give_back(&key, flow);
		return VERDICT_FOLLOW;
	}
	if (entry.flags & FLOW_HALF_OPEN)
		give_ring_slot(&key);
	count(flow_made);
	return VERDICT_CONTINUE;
}

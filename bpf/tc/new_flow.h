/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Flows begin, at any hook: both directions are added. */
#pragma once

#include "../abi/maps.h"
#include "../flow/room.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "../flow/traffic.h"
#include "../lb/health.h"
#include "../lib/addr.h"
#include "../lib/filter.h"
#include "../lib/verdict.h"
#include "conntrack.h"
#include "first_reply.h"
#include "flow.h"
#include "packet.h"
#include "recover.h"
#include "refuse.h"
#include "restore.h"
#include "snat.h"

/*
 * Does a packet begin a flow? One within a TCP connection goes on with the reply
 * direction that is there, or without one if the backend was found otherwise.
 */
static __always_inline bool begins(const struct packet *pkt,
				   const struct new_flow *flow)
{
	return may_begin(pkt) ||
	       (flow->flags & (FLOW_TO_BACKEND | FLOW_SEEN)) == FLOW_TO_BACKEND;
}

/*
 * Gives back what was added for a flow whose original direction was not added, as it was
 * there or had no room: the reply direction, unless that belongs to what is there. Where
 * that is unknown, since another CPU is about to add it, the reply direction goes if this
 * CPU has added it and nobody else has renewed it. Not inlined, for the stack of the caller.
 */
static __noinline int give_back(const struct packet *pkt,
				const struct new_flow *flow, bool unknown)
{
	struct tuple key = pkt->tuple;
	struct found f;

	if (!unknown && find_flow(&key, &f) && leads_to(f.flow, &flow->to))
		return 0;
	other_key(&key, &flow->to, pkt->tuple.hook);
	if (find_flow(&key, &f) && (!unknown || f.seen == flow->added_state))
		remove_flow(&f);
	return 0;
}

/*
 * Source ports to the backend of a packet that leaves run short: who comes next gets
 * another one while there are some left. Half-open flows do not count, since they make
 * room. Not inlined, for the stack of the caller.
 */
static __noinline int note_scarce_ports(const struct packet *pkt,
					const struct new_flow *flow)
{
	struct tuple key = reversed(&pkt->tuple);
	struct found reply, original;
	struct backend *b;

	key.hook = HOOK_OUT;
	if (!find_flow(&key, &reply) ||
	    !find_other(&key, reply.flow, &original))
		return 0;
	b = flow_backend(original.flow);
	if (b && same_addr(&b->to.addr, &pkt->tuple.dst))
		note_scarce(b, flow->now_ns);
	return 0;
}

/* A direction of a flow could not be added, or its connection cannot go on. */
static __noinline enum verdict refuse_flow(const struct packet *pkt,
					   const struct new_flow *flow,
					   enum added why, bool begins)
{
	__u32 service = flow->service ?: service_behind(pkt);

	if (flow->flags & FLOW_BYPASS && why == FLOW_NO_ROOM)
		return VERDICT_PASS; /* it can do without */

	if (why == FLOW_AGAIN) /* the packet comes too soon */
		return refuse_packet(pkt, DROP_NO_FLOW, service);
	note_unsent(pkt);
	if (why == FLOW_NO_ROOM)
		return refuse_packet(pkt, DROP_TABLE_FULL, service);
	if (!begins)
		return refuse_midstream(pkt, service);
	refuse_packet(pkt, DROP_SNAT_EXHAUSTED, service);
	return pkt->l4_proto == IPPROTO_TCP ? VERDICT_RESET : VERDICT_REFUSE;
}

/*
 * Takes back a flow that a packet has begun just now, whose reply direction takes what others get.
 * Not inlined, for the stack of the caller.
 */
static __noinline int unbegin(const struct packet *pkt)
{
	struct new_flow *flow = begun_flow();
	struct tuple key = pkt->tuple;
	struct found f;

	if (flow)
		flow->added_state = 0;
	if (find_flow(&key, &f))
		remove_flow(&f);
	other_key(&key, &pkt->to, pkt->tuple.hook);
	if (find_flow(&key, &f))
		remove_flow(&f);
	return 0;
}

/* Counts a flow of datagrams to a backend; that of a connection counts when it is confirmed. */
static __always_inline void count_flow(const struct packet *pkt,
				       const struct new_flow *flow)
{
	__u32 id = flow->backend_id;
	struct backend *b;

	if (!(flow->flags & FLOW_TO_BACKEND) || pkt->l4_proto == IPPROTO_TCP)
		return;
	b = bpf_map_lookup_elem(&backends, &id);
	if (b)
		count_connection(flow->service, b);
}

/*
 * May somebody else get what the reply direction of a flow takes, whom only the kernel knows? What
 * is past the Services or within a connection may be just that. Datagrams that keep the address
 * of their client may be: the kernel tracks former ones of the same flow.
 */
static __always_inline bool may_take_from_others(const struct packet *pkt,
						 const struct new_flow *flow)
{
	if (!may_begin(pkt) || flow->flags & FLOW_BYPASS)
		return false;
	return pkt->tuple.hook == HOOK_OUT ? pkt->l4_proto != IPPROTO_SCTP :
					     pkt->l4_proto == IPPROTO_TCP;
}

/*
 * Adds both directions of a new flow. flow->to is what its first packet becomes, which
 * the caller is to rewrite; its source port may change. A flow of a pod keeps its
 * source, since replies leave by the device of the pod wherever the backend is. Of two
 * CPUs that begin the same flow the one that adds the original direction first wins,
 * and the packet of the other follows (VERDICT_FOLLOW).
 */
GLOBAL_FUNC int begin_flow(struct packet *pkt, struct new_flow *flow)
{
	bool begun, had_reply;
	int added;

	if (!pkt || !flow)
		return VERDICT_PASS;
	pkt->begun = false;
	begun = begins(pkt, flow);
	flow->sent = pkt->tuple;
	if (!(flow->flags & FLOW_SEEN))
		flow->flags |= FLOW_HALF_OPEN;
	added = add_reply(flow, begun, pkt->pod);
	had_reply = !flow->added_state;
	if (flow->taken - flow->half_open.flows >= SNAT_SCARCE &&
	    pkt->tuple.hook == HOOK_OUT)
		note_scarce_ports(pkt, flow);
	if (added != FLOW_ADDED)
		return refuse_flow(pkt, flow, added, begun);
	flow_filter_add(&flow->sent.dst, flow->sent.dst_port);
	if (flow->sent.hook == HOOK_IN)
		flow_filter_add(&flow->to.dst, flow->to.dst_port);
	else
		flow_filter_add(&flow->to.src, flow->to.src_port);
	flow->key = flow->sent;
	flow->becomes = flow->to;
	flow->added_flags = flow->flags | FLOW_ORIGINAL;
	flow->added_known = flow->backend_id;
	added = add_flow(flow);
	if (added == FLOW_ADDED) {
		if (is_to_count(flow->added_flags))
			count_packet(flow->added_place, payload_len(pkt));
		count(flow_made);
		count_flow(pkt, flow);
		pkt->begun = !had_reply && may_take_from_others(pkt, flow);
		return VERDICT_CONTINUE;
	}
	give_back(pkt, flow, added == FLOW_AGAIN);
	return added == FLOW_EXISTS ? VERDICT_FOLLOW :
				      refuse_flow(pkt, flow, added, begun);
}

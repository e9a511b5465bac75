/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which backend outside does a packet go to that is of no kept flow? What begins goes to the one
 * that its slot names, or to another while probes of that fail. What is within a connection has
 * begun at another node, or its flow has made room: where its slot has moved lately it goes to the one
 * before. Either way it stays there: from now on there is a flow.
 */
#pragma once

#include "../abi/maps.h"
#include "../carry/ring.h"
#include "../flow/room.h"
#include "../flow/traffic.h"
#include "../lb/client.h"
#include "../lb/health.h"
#include "../lb/select.h"
#include "../lb/table.h"
#include "../lib/filter.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "flow.h"
#include "packet.h"
#include "recover.h"
#include "restore.h"

/* May a packet begin something? An ICMP error stands for one within the flow that it is about. */
static __always_inline bool may_start(const struct packet *pkt)
{
	return pkt->l4_proto == pkt->tuple.protocol && may_begin(pkt);
}

/*
 * The home of a backend for a packet. One outside sees the packet as it is, so it takes what has its
 * own port, and nothing else is carried there.
 */
static __always_inline __u32 home_for(const struct packet *pkt, __u32 backend)
{
	struct backend *b = bpf_map_lookup_elem(&backends, &backend);
	__u32 home = b ? b->home : HOME_UNKNOWN;

	if (is_outside(home) && b->to.port != pkt->tuple.dst_port)
		return HOME_UNKNOWN;
	return home;
}

/* Is a backend left out while it is ejected? What begins may be its retry. */
static __always_inline bool is_left_out(const struct packet *pkt,
					const struct frontend *f,
					struct backend *b,
					const struct client *client)
{
	if (may_start(pkt))
		return is_ejected(f, b, client);
	return f->flags & FRONTEND_PASSIVE_HEALTH &&
	       is_ejected_for(b, client_id(client->addr, false));
}

/*
 * Chooses a backend outside for a packet, given its slot; false if there is none. Not inlined, for
 * the stack of the caller.
 */
static __noinline bool choose_outside(const struct packet *pkt,
				      const struct frontend *f, __u32 slot,
				      struct choice *c)
{
	struct view view = read_view(&f->views[VIEW_EXTERNAL]);
	struct client client = {
		.addr = &pkt->tuple.src,
		.dst = &pkt->tuple.dst,
		.port = pkt->tuple.src_port,
	};

	c->slot = slot;
	if (!(may_start(pkt) ? find_backend(c) :
			       find_by_hash(f, view, &client, c)))
		return false;
	if (is_left_out(pkt, f, c->backend, &client))
		choose_other(f, view, false, &client, c);
	if (c->backend && is_outside(home_for(pkt, c->id)))
		return true;
	c->slot = slot;
	return find_backend(c);
}

/* Is a packet one of a flow that is worth to be kept? */
static __always_inline bool is_worth_keeping(const struct packet *pkt)
{
	return pkt->l4_proto == pkt->tuple.protocol && !only_follows(pkt) &&
	       !(pkt->tcp_flags & (TCP_FIN | TCP_RST)) && !hands_over();
}

/* Adds the flow of a packet to a backend. */
static __always_inline enum added keep_flow(const struct packet *pkt,
					    struct new_flow *flow,
					    const struct choice *c)
{
	flow->key = pkt->tuple;
	flow->becomes = pkt->tuple;
	flow->becomes.dst = c->backend->to.addr;
	flow->added_flags = FLOW_KEPT | FLOW_ORIGINAL | FLOW_HALF_OPEN |
			    FLOW_DATAGRAMS;
	flow->added_known = c->id;
	flow_filter_add(&flow->key.dst, flow->key.dst_port);
	return add_flow(flow);
}

/*
 * Carries a packet to a backend outside, and keeps its flow, unless another CPU was first
 * (VERDICT_FOLLOW). Where there is no room for a flow the packet goes by its hash, until its slot
 * moves.
 */
GLOBAL_FUNC int to_outside(struct packet *pkt)
{
	struct new_flow *flow = empty_flow();
	struct choice choice = {};
	const struct frontend *f;
	enum added added;

	if (!pkt || !flow)
		return VERDICT_CONTINUE;
	flow->now_ns = coarse_now();
	f = frontend_of(&pkt->tuple.dst, pkt->tuple.dst_port,
			pkt->tuple.protocol);
	if (!f || !choose_outside(pkt, f, pkt->slot, &choice))
		return VERDICT_CONTINUE;
	if (is_worth_keeping(pkt)) {
		added = keep_flow(pkt, flow, &choice);
		if (added == FLOW_EXISTS)
			return VERDICT_FOLLOW;
		if (added == FLOW_ADDED) {
			count_packet(flow->added_place, payload_len(pkt));
			count(flow_made);
		}
		if (added == FLOW_ADDED && pkt->l4_proto != IPPROTO_TCP)
			count_connection(f->service, choice.backend);
	}
	pkt->home = home_for(pkt, choice.id);
	pkt->tried = 0;
	return VERDICT_CARRY;
}

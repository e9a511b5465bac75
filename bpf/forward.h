/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Balancing packets: what enters or leaves by a device on which others reach
 * the node.
 */
#pragma once

#include "begin.h"
#include "clock.h"

/* A packet for a frontend goes to a backend. */
static __always_inline enum verdict to_backend(const struct packet *pkt,
					       const struct frontend *f,
					       struct view view,
					       struct flow *way)
{
	struct client client = {
		.addr = &pkt->tuple.src,
		.dst = &pkt->tuple.dst,
		.port = pkt->tuple.src_port,
	};
	struct choice choice = {};
	bool had_back = false;
	enum verdict v;

	if (!may_begin(pkt)) {
		if (!find_lost(pkt, f, view, &client, &choice, &had_back))
			return refuse_lost(f->service);
	} else {
		v = select_from(f, view, view_widens(pkt, f), &client, &choice);
		if (v != VERDICT_CONTINUE)
			return v;
	}
	if (!choice.backend)
		return VERDICT_REFUSE;
	way->to = pkt->tuple;
	way->to.dst = choice.backend->to.addr;
	way->to.dst_port = choice.backend->to.port;
	/* Both ways of a pod to itself would be the same. */
	if (pkt->pod && same_addr(&way->to.src, &way->to.dst) &&
	    way->to.src_port == way->to.dst_port)
		way->to.src_port = snat_port(bpf_get_prandom_u32());
	way->frontend = f->id;
	way->service = f->service;
	way->backend_id = choice.id;
	way->slot = choice.slot;
	way->flags = FLOW_TO_BACKEND | (had_back ? FLOW_SEEN : 0);
	return VERDICT_BEGIN;
}

/*
 * TCP that nobody can take is answered with a reset. A datagram goes to port 0 of
 * the node, on which nobody ever listens: the kernel answers it as it should, and
 * not too often.
 */
static __always_inline enum verdict
to_nobody(struct __sk_buff *skb, const struct packet *pkt, struct flow *way)
{
	if (pkt->l4_proto == IPPROTO_TCP)
		return VERDICT_RESET;
	way->to = pkt->tuple;
	if (!device_addr(skb, &pkt->tuple.dst, &way->to.dst))
		return VERDICT_REFUSE;
	way->to.dst_port = 0;
	way->flags = FLOW_REFUSED;
	return VERDICT_BEGIN;
}

/*
 * What is for no Service is left alone, unless a flow has what would be its way
 * back: the same client speaks to the backend by a frontend, too, from the same
 * port. Then it gets a flow of its own, and a port if the other one goes on.
 */
static __always_inline enum verdict past_services(const struct packet *pkt,
						  struct flow *way)
{
	struct tuple key = reversed(&pkt->tuple);
	struct flow *back;

	if (!may_begin(pkt))
		return VERDICT_PASS;
	key.hook = HOOK_OUT;
	back = bpf_map_lookup_elem(&conntrack, &key);
	if (!back || !(back->flags & FLOW_BACK))
		return VERDICT_PASS;
	way->to = pkt->tuple;
	way->service = back->service;
	way->flags = FLOW_DIRECT;
	return VERDICT_BEGIN;
}

/*
 * What becomes of a packet that may be for a frontend. *way is empty; if the packet
 * begins a flow (VERDICT_BEGIN) it says which.
 */
STEP int balance(struct __sk_buff *skb, struct packet *pkt, struct flow *way)
{
	struct addr_port dst = {};
	struct frontend *f;
	struct view view;
	enum verdict v;
	__u32 no_local;

	if (!pkt || !way)
		return VERDICT_PASS;
	dst.addr = pkt->tuple.dst;
	dst.port = pkt->tuple.dst_port;
	dst.protocol = pkt->tuple.protocol;
	v = find_frontend(NULL, &dst, &f);
	if (v == VERDICT_REFUSE)
		return to_nobody(skb, pkt, way);
	if (v != VERDICT_CONTINUE)
		return past_services(pkt, way);
	if (!is_allowed(f, &pkt->tuple.src))
		return refuse(DROP_SOURCE_RANGE, f->service);
	view = view_for(pkt, f);
	if (view.size)
		return to_backend(pkt, f, view, way);
	no_local = pkt->pod ? FRONTEND_INTERNAL_NO_LOCAL :
			      FRONTEND_EXTERNAL_NO_LOCAL;
	if (f->flags & no_local)
		return refuse(DROP_NO_LOCAL_ENDPOINT, f->service);
	refuse(DROP_NO_ENDPOINT, f->service);
	return to_nobody(skb, pkt, way);
}

/*
 * A packet on its way out to a backend on another node gets the address of the
 * device, so that the answer comes back here. It is one of ours if the way back
 * of the client is known. The port is none that a socket of the node may have to
 * the same backend.
 *
 * The same is done to a packet on its way into the pod that sent it: a pod
 * does not answer to itself by way of the node. Nothing else that goes into a
 * pod is changed.
 */
STEP int from_device(struct __sk_buff *skb, struct packet *pkt,
		     struct flow *way)
{
	struct flow *flow;
	struct tuple back;

	if (!pkt || !way)
		return VERDICT_PASS;
	if (pkt->pod && !same_addr(&pkt->tuple.src, &pkt->tuple.dst))
		return VERDICT_PASS;
	back = reversed(&pkt->tuple);
	flow = bpf_map_lookup_elem(&conntrack, &back);
	if (!flow || flow->flags & FLOW_DIRECT ||
	    (!pkt->pod && flow->flags & FLOW_FROM_POD))
		return VERDICT_PASS;
	way->to = pkt->tuple;
	if (!device_addr(skb, &pkt->tuple.src, &way->to.src))
		return refuse(DROP_NO_ADDRESS, flow->service);
	way->to.src_port = snat_port(bpf_ntohs(pkt->tuple.src_port));
	way->frontend = flow->frontend;
	way->service = flow->service;
	way->backend_id = flow->backend_id;
	way->slot = flow->slot;
	return VERDICT_BEGIN;
}

/* Gives a packet of a flow what that says; what has none goes on to the next step. */
STEP int follow_flow(struct __sk_buff *skb, struct packet *pkt)
{
	struct flow *flow;
	struct tuple key;
	enum verdict v;
	__u64 now;

	if (!pkt)
		return VERDICT_PASS;
	v = pkt->plain ? VERDICT_CONTINUE : find_ports(skb, pkt);
	if (v != VERDICT_CONTINUE)
		return v;
	key = pkt->tuple; /* Linux 6.1 takes no key from a caller's memory */
	flow = bpf_map_lookup_elem(&conntrack, &key);
	if (!flow)
		return pkt->fragment || (pkt->l4_proto == IPPROTO_SCTP &&
					 pkt->more_fragments) ?
			       VERDICT_PASS :
			       VERDICT_CONTINUE;
	now = coarse_now();
	v = still_flows(pkt, flow, now);
	if (v != VERDICT_PASS)
		return v;
	if (is_notable(pkt, flow, now))
		note_packet(skb, pkt, flow);
	key = flow->to; /* a copy: the entry may come to another flow meanwhile */
	count(flow_packet);
	return rewrite(skb, pkt, &key) ? VERDICT_PASS : VERDICT_REFUSE;
}

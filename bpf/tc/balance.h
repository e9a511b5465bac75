/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Balancing packets: what becomes of one that enters or leaves by a device on which
 * others reach the node? Nothing here reads or writes a frame. A hook that is not
 * TC has to read packets and to do what is decided, and decides nothing itself.
 */
#pragma once

#include "../abi/maps.h"
#include "../lb/client.h"
#include "../lb/frontend.h"
#include "../lb/select.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "conntrack.h"
#include "flow.h"
#include "new_flow.h"
#include "packet.h"
#include "recover.h"
#include "snat.h"

/*
 * Which view a client gets: a pod is on this node. To the compiler a bool is 0 or
 * 1, to the verifier any byte: the mask holds for both.
 */
static __always_inline enum view_index client_view(const struct packet *pkt)
{
	enum view_index i = pkt->pod ? VIEW_INTERNAL : VIEW_EXTERNAL;

	asm volatile("" : "+r"(i));
	return i & (VIEWS - 1);
}

/* The address of the device that has the family of a. */
static __always_inline bool device_addr(const struct packet *pkt,
					const struct ip_addr *a,
					struct ip_addr *own)
{
	__u32 ifindex = pkt->ifindex;
	struct device *d = bpf_map_lookup_elem(&devices, &ifindex);

	if (!d)
		return false;
	*own = is_ip4(a) ? d->ip4 : d->ip6;
	return !is_zero(own);
}

/* The frontend that a packet is for, see find_frontend. */
static __always_inline enum verdict packet_frontend(const struct packet *pkt,
						    struct frontend **frontend,
						    enum drop_reason *why)
{
	struct addr_port dst = {
		.addr = pkt->tuple.dst,
		.port = pkt->tuple.dst_port,
		.protocol = pkt->tuple.protocol,
	};

	return find_frontend(NULL, &dst, frontend, why);
}

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
		.on_node = pkt->pod,
	};
	struct choice choice = {};
	bool had_back = false;
	enum verdict v;

	if (!may_begin(pkt)) {
		if (!find_lost(pkt, f, view, &client, &choice, &had_back))
			return refuse_lost(f->service);
	} else {
		v = select_from(f, view,
				f->flags & FRONTEND_FALLS_BACK
						   << client_view(pkt),
				&client, &choice);
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
static __always_inline enum verdict to_nobody(const struct packet *pkt,
					      struct flow *way)
{
	if (pkt->l4_proto == IPPROTO_TCP)
		return VERDICT_RESET;
	way->to = pkt->tuple;
	if (!device_addr(pkt, &pkt->tuple.dst, &way->to.dst))
		return VERDICT_REFUSE;
	way->to.dst_port = 0;
	way->flags = FLOW_REFUSED;
	return VERDICT_BEGIN;
}

/*
 * What is for no Service is left alone, unless a flow has what would be its way
 * back: the same client speaks to the backend by a frontend, too, from the same
 * port. Then it gets a flow of its own, and a port if the other one goes on. Not
 * inlined: the stack of its caller has no room to spare.
 */
static __noinline enum verdict past_services(const struct packet *pkt,
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
STEP int balance(struct packet *pkt, struct flow *way)
{
	struct frontend *f;
	struct view view;
	enum drop_reason why;
	enum verdict v;

	if (!pkt || !way || is_discarded(pkt))
		return VERDICT_PASS;
	v = packet_frontend(pkt, &f, &why);
	if (v == VERDICT_REFUSE) {
		refuse(why, 0);
		return to_nobody(pkt, way);
	}
	if (v != VERDICT_CONTINUE)
		return past_services(pkt, way);
	if (!is_allowed(f, &pkt->tuple.src))
		return refuse(DROP_SOURCE_RANGE, f->service);
	view = read_view(&f->views[client_view(pkt)]);
	if (view.size) {
		v = to_backend(pkt, f, view, way);
		if (v == VERDICT_BEGIN && ends_here(pkt))
			way->flags |= FLOW_UNSENT;
		return v;
	}
	if (f->flags & FRONTEND_NO_LOCAL << client_view(pkt))
		return refuse(DROP_NO_LOCAL_ENDPOINT, f->service);
	refuse(DROP_NO_ENDPOINT, f->service);
	return to_nobody(pkt, way);
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
STEP int from_device(struct packet *pkt, struct flow *way)
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
	if (!device_addr(pkt, &pkt->tuple.src, &way->to.src)) {
		set_flow_flag(flow, FLOW_UNSENT);
		return refuse(DROP_NO_ADDRESS, flow->service);
	}
	clear_flow_flags(flow, FLOW_UNSENT);
	way->to.src_port = snat_port(bpf_ntohs(pkt->tuple.src_port));
	way->frontend = flow->frontend;
	way->service = flow->service;
	way->backend_id = flow->backend_id;
	way->slot = flow->slot;
	return VERDICT_BEGIN;
}

/*
 * A packet of no flow may begin one, and is rewritten then. If another CPU was first
 * it follows; it is dropped if there is still what it found to hold no more.
 */
static __always_inline enum verdict begin(struct packet *pkt)
{
	struct flow *way = empty_flow();
	enum verdict v;

	if (!way)
		return VERDICT_PASS;
	v = pkt->tuple.hook == HOOK_IN ? balance(pkt, way) :
					 from_device(pkt, way);
	if (v != VERDICT_BEGIN)
		return v;
	v = begin_flow(pkt, way);
	if (v == VERDICT_CONTINUE) {
		pkt->to = way->to;
		return VERDICT_REWRITE;
	}
	if (v != VERDICT_FOLLOW)
		return v;
	v = follow_flow(pkt);
	return v == VERDICT_CONTINUE ? refuse(DROP_NO_FLOW, way->service) : v;
}

/*
 * What becomes of a packet that is no ICMP error and whose ports are known? It
 * passes, becomes pkt->to (VERDICT_REWRITE), is dropped or answered with a reset.
 */
static __always_inline enum verdict decide(struct packet *pkt)
{
	enum verdict v = VERDICT_CONTINUE;

	if (may_have_flow(pkt))
		v = follow_flow(pkt);
	else if (!may_be_balanced(pkt))
		v = VERDICT_PASS;
	return v == VERDICT_CONTINUE ? begin(pkt) : v;
}

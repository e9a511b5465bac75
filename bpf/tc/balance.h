/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Balancing packets: what becomes of one that enters or leaves by a device on which
 * others reach the node? Nothing here reads or writes a frame. A hook that is not
 * TC has to read packets and to do what is decided, and decides nothing itself.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../flow/flood.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "../lb/client.h"
#include "../lb/frontend.h"
#include "../lb/select.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "classify.h"
#include "conntrack.h"
#include "flow.h"
#include "home.h"
#include "new_flow.h"
#include "outside.h"
#include "over.h"
#include "packet.h"
#include "recover.h"
#include "refuse.h"
#include "restore.h"
#include "snat.h"

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
					       struct new_flow *flow)
{
	struct client client = {
		.addr = &pkt->tuple.src,
		.dst = &pkt->tuple.dst,
		.port = pkt->tuple.src_port,
		.on_node = pkt->pod,
		.steady = pkt->l4_proto == IPPROTO_TCP &&
			  is_flooded(flow->now_ns),
	};
	struct choice choice = {};
	bool had_reply = false;

	if (flow->backend_id) { /* find_home has chosen */
		choice.id = flow->backend_id;
		choice.backend = bpf_map_lookup_elem(&backends, &choice.id);
	} else if (!may_begin(pkt)) {
		if (!recover_flow(pkt, f, view, &client, &choice, &had_reply))
			return refuse_midstream(pkt, f->service);
	} else if (hands_over()) {
		return VERDICT_PASS;
	} else if (!had_backend(pkt, f, flow->now_ns, &choice)) {
		if (!select_from(f, view,
				 f->flags & FRONTEND_FALLS_BACK
						    << client_view(pkt),
				 &client, &choice))
			return refuse_packet(pkt, DROP_NO_BACKEND, f->service);
	}
	if (!choice.backend)
		return VERDICT_REFUSE;
	flow->to = pkt->tuple;
	flow->to.dst = choice.backend->to.addr;
	flow->to.dst_port = choice.backend->to.port;
	/* Both directions of a pod to itself would be the same. */
	if (pkt->pod && same_addr(&flow->to.src, &flow->to.dst) &&
	    flow->to.src_port == flow->to.dst_port)
		flow->to.src_port = snat_port(bpf_get_prandom_u32(), false);
	flow->service = f->service;
	flow->backend_id = choice.id;
	flow->flags = FLOW_TO_BACKEND | (had_reply ? FLOW_SEEN : 0);
	return VERDICT_BEGIN;
}

/*
 * TCP without a backend is answered with a reset. A datagram goes to port 0 of the
 * node, on which nothing can listen: the kernel answers it with the ICMP error that is
 * due, and limits the rate.
 */
static __always_inline enum verdict to_nobody(const struct packet *pkt,
					      struct new_flow *flow)
{
	if (pkt->l4_proto == IPPROTO_TCP || !may_begin(pkt))
		return VERDICT_RESET;
	flow->to = pkt->tuple;
	if (!device_addr(pkt, &pkt->tuple.dst, &flow->to.dst))
		return VERDICT_REFUSE;
	flow->to.dst_port = 0;
	flow->flags = FLOW_REFUSED;
	return VERDICT_BEGIN;
}

/*
 * What is for no Service is left alone, unless its replies would match the reply
 * direction of a flow: the same client speaks to the backend by a frontend, too, from
 * the same port. Then it gets a flow of its own, and another port if the other flow
 * goes on. Not inlined: the stack of its caller has no room to spare.
 */
static __noinline enum verdict bypass_services(const struct packet *pkt,
					       struct new_flow *flow)
{
	struct tuple key = reversed(&pkt->tuple);
	struct found reply;

	if (!may_begin(pkt))
		return VERDICT_PASS;
	key.hook = HOOK_OUT;
	if (!find_flow(&key, &reply) || !(reply.seen & FLOW_REPLY) ||
	    (!pkt->pod && reply.seen & FLOW_FROM_POD)) /* see its device */
		return VERDICT_PASS;
	flow->to = pkt->tuple;
	flow->flags = FLOW_BYPASS;
	return VERDICT_BEGIN;
}

/*
 * What becomes of a packet that may be for a frontend. *flow is empty; if the packet
 * begins a flow (VERDICT_BEGIN) it says which.
 */
GLOBAL_FUNC int balance(struct packet *pkt, struct new_flow *flow)
{
	struct frontend *f = NULL;
	struct view view;
	enum drop_reason why;
	enum verdict v;

	if (!pkt || !flow || is_discarded(pkt))
		return VERDICT_PASS;
	v = packet_frontend(pkt, &f, &why);
	if (v != VERDICT_CONTINUE && v != VERDICT_REFUSE)
		return bypass_services(pkt, flow);
	if (!is_carried(pkt, f) && may_be_of_others(pkt, f))
		return VERDICT_ASK;
	if (v == VERDICT_REFUSE) {
		refuse_packet(pkt, why, 0);
		return to_nobody(pkt, flow);
	}
	if (!is_allowed(f, &pkt->tuple.src))
		return refuse_packet(pkt, DROP_SOURCE_RANGE, f->service);
	if (is_from_frontend(&pkt->tuple, f))
		return refuse_packet(pkt, DROP_MARTIAN, f->service);
	view = read_view(&f->views[client_view(pkt)]);
	if (view.size) {
		v = to_backend(pkt, f, view, flow);
		if (v == VERDICT_BEGIN && ends_here(pkt))
			flow->flags |= FLOW_UNSENT;
		return v;
	}
	if (f->flags & FRONTEND_NO_LOCAL << client_view(pkt))
		return refuse_packet(pkt, DROP_NO_LOCAL_ENDPOINT, f->service);
	refuse_packet(pkt, DROP_NO_ENDPOINT, f->service);
	return to_nobody(pkt, flow);
}

/* Has a packet the source address of the device that it leaves by? */
static __always_inline bool is_from_device(const struct packet *pkt)
{
	struct ip_addr own;

	return device_addr(pkt, &pkt->tuple.src, &own) &&
	       same_addr(&own, &pkt->tuple.src);
}

/* Does a packet come from an end of the node at which a frontend answers, such as a NodePort? */
static __always_inline bool is_from_answering(const struct packet *pkt)
{
	struct addr_port from = {
		.addr = pkt->tuple.src,
		.port = pkt->tuple.src_port,
		.protocol = pkt->tuple.protocol,
	};
	enum drop_reason why;
	struct frontend *f;

	return is_own_address(&pkt->tuple.src) &&
	       find_frontend(NULL, &from, &f, &why) == VERDICT_CONTINUE;
}

/*
 * A connection of the node itself, or one that has its address by now, gets a flow if it goes
 * to where flows go: none of these takes its source port then, and it gets another port if one
 * has it. It also gets one if a frontend answers at its source: the replies go to the flow then, not to
 * the frontend. Carried packets and echoes get none: their flows are those of the inner packets.
 */
static __noinline enum verdict from_node(const struct packet *pkt,
					 struct new_flow *flow)
{
	if (pkt->pod || !may_begin(pkt) ||
	    (carrying && is_to_carry_port(pkt)) ||
	    !(is_from_device(pkt) || is_from_answering(pkt)) || hands_over())
		return VERDICT_PASS;
	flow->to = pkt->tuple;
	flow->flags = FLOW_BYPASS;
	return VERDICT_BEGIN;
}

/*
 * Does a packet within a connection leave by a device that leads to backends on this node, too?
 * The connection may have begun with the address of its client, before the device had programs.
 */
static __always_inline bool goes_on(const struct packet *pkt)
{
	__u32 ifindex = pkt->ifindex;
	const struct device *d;

	if (may_begin(pkt))
		return false;
	d = bpf_map_lookup_elem(&devices, &ifindex);
	return d && d->flags & DEVICE_SHARED;
}

/*
 * Do clients elsewhere reach backends of this node alone by the frontend of a reply direction?
 * Then these see the addresses of clients, whatever device leads to them.
 */
static __always_inline bool is_local(const struct found *reply)
{
	const struct frontend *f = frontend_of_flow(&reply->flow->to,
						    reply->flow->to_src_port,
						    reply->flow->protocol);

	return f && (f->flags >> FRONTEND_WHY_BITS * VIEW_EXTERNAL &
		     FRONTEND_WHY) == FRONTEND_WHY_LOCAL;
}

/*
 * A packet on its way out to a backend on another node gets the address of the
 * device, so that the reply comes back here. It is of a flow if there is a reply
 * direction to its client. The port is one that no socket of the node has to the same
 * backend.
 *
 * The same is done to a packet on its way into the pod that sent it: a pod
 * does not answer to itself through the node. Nothing else that goes into a
 * pod is changed.
 */
GLOBAL_FUNC int from_device(struct packet *pkt, struct new_flow *flow)
{
	struct found reply;
	struct tuple key;

	if (!pkt || !flow)
		return VERDICT_PASS;
	if (pkt->pod && !same_addr(&pkt->tuple.src, &pkt->tuple.dst))
		return VERDICT_PASS;
	key = reversed(&pkt->tuple);
	if (!find_flow(&key, &reply))
		return from_node(pkt, flow);
	if (reply.seen & FLOW_BYPASS ||
	    (!pkt->pod &&
	     (reply.seen & FLOW_FROM_POD || is_local(&reply) || goes_on(pkt))))
		return VERDICT_PASS;
	flow->to = pkt->tuple;
	if (!device_addr(pkt, &pkt->tuple.src, &flow->to.src)) {
		set_flow_flag(&reply, FLOW_UNSENT);
		return refuse_packet(pkt, DROP_NO_ADDRESS, service_behind(pkt));
	}
	clear_flow_flag(&reply, FLOW_UNSENT);
	if (!is_snat_port(flow->to.src_port))
		flow->to.src_port = snat_port(
			bpf_ntohs(flow->to.src_port) * GOLDEN_RATIO, false);
	return VERDICT_BEGIN;
}

/* A packet follows the flow that another CPU was first to begin. */
static __always_inline enum verdict follow_first(struct packet *pkt,
						 __u32 service)
{
	enum verdict v = follow_flow(pkt);

	return v == VERDICT_CONTINUE ?
		       refuse_packet(pkt, DROP_NO_FLOW, service) :
		       v;
}

/*
 * A packet begins a flow, and is rewritten then. If another CPU was first it follows; it is
 * dropped if the flow that it found invalid is still there.
 */
static __always_inline enum verdict begin_with(struct packet *pkt,
					       struct new_flow *flow)
{
	enum verdict v = begin_flow(pkt, flow);

	if (v == VERDICT_CONTINUE) {
		pkt->to = flow->to;
		return VERDICT_REWRITE;
	}
	return v == VERDICT_FOLLOW ? follow_first(pkt, flow->service) : v;
}

/* The flow that a packet has begun takes what others get: it begins anew by another port. */
static __always_inline enum verdict begin_anew(struct packet *pkt)
{
	struct new_flow *flow = begun_flow();

	unbegin(pkt);
	return flow ? begin_with(pkt, flow) : VERDICT_REFUSE;
}

/* A packet of no flow may begin one. */
static __always_inline enum verdict begin(struct packet *pkt)
{
	struct new_flow *flow = empty_flow();
	enum verdict v;

	if (!flow)
		return VERDICT_PASS;
	flow->now_ns = coarse_now();
	if (carrying && pkt->tuple.hook == HOOK_IN) {
		v = find_home(pkt, flow);
		if (v == VERDICT_OUTSIDE)
			v = to_outside(pkt);
		if (v == VERDICT_FOLLOW)
			return follow_first(pkt, 0);
		if (v != VERDICT_CONTINUE)
			return v;
	}
	if (only_follows(pkt))
		return VERDICT_PASS;
	v = pkt->tuple.hook == HOOK_IN ? balance(pkt, flow) :
					 from_device(pkt, flow);
	return v == VERDICT_BEGIN ? begin_with(pkt, flow) : v;
}

/*
 * What becomes of a packet that is no ICMP error and whose ports are known? It
 * passes, becomes pkt->to (VERDICT_REWRITE), is dropped or answered with a reset. Or
 * the hook has to ask the kernel (VERDICT_ASK), and decides again if that does not track
 * the connection.
 */
static __always_inline enum verdict decide(struct packet *pkt)
{
	enum verdict v = pkt->flowless ? VERDICT_CONTINUE : follow_flow(pkt);

	return v == VERDICT_CONTINUE ? begin(pkt) : v;
}

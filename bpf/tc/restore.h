/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a flow does not say itself is found by its ends: of which Service it is, and how
 * its other direction goes, where that has made room for another.
 */
#pragma once

#include "../abi/maps.h"
#include "../flow/room.h"
#include "../flow/table.h"
#include "../lb/frontend.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/verdict.h"
#include "flow.h"
#include "packet.h"

/*
 * The frontend that a new client names, or NULL. Not inlined: it is asked for where
 * stacks have no room to spare.
 */
static __noinline struct frontend *frontend_of(const struct ip_addr *addr,
					       __be16 port, __u8 protocol)
{
	struct addr_port at = {
		.addr = *addr,
		.port = port,
		.protocol = protocol,
	};
	struct frontend *f = NULL;
	enum drop_reason why;

	find_frontend(NULL, &at, &f, &why);
	return f;
}

/* The frontend by which the client of a flow has begun, which may be a former one; see service_at. */
static __noinline struct frontend *frontend_of_flow(const struct ip_addr *addr,
						    __be16 port, __u8 protocol)
{
	struct addr_port at = {
		.addr = *addr,
		.port = port,
		.protocol = protocol,
	};

	return frontend_at(&at) ?: node_frontend(&at);
}

/* The Service of a flow that goes on by a device or past the Services, 0 if unknown. */
static __noinline __u32 service_behind(const struct packet *pkt)
{
	struct tuple key = reversed(&pkt->tuple);
	struct frontend *f;
	struct found reply;

	key.hook = HOOK_OUT;
	if (!find_flow(&key, &reply))
		return 0;
	f = frontend_of_flow(&reply.flow->to, reply.flow->to_src_port,
			     key.protocol);
	return f ? f->service : 0;
}

/* The search for the ID of a backend by its address. */
struct backend_search {
	struct choice choice;
	struct ip_addr addr;
	__u32 offset; /* of the table */
	__be16 port;
	bool found;
};

static long try_address(__u32 i, void *data)
{
	struct backend_search *s = data;

	s->choice.slot = s->offset + i;
	s->found = find_backend(&s->choice) &&
		   s->choice.backend->to.port == s->port &&
		   same_addr(&s->choice.backend->to.addr, &s->addr);
	return s->found;
}

/* The ID of the backend that a packet is a reply of, 0 if the Service has it no more. */
static __noinline __u32 replying_backend(const struct packet *pkt)
{
	struct frontend *f = frontend_of_flow(&pkt->to.src, pkt->to.src_port,
					      pkt->tuple.protocol);
	struct backend_search s = {
		.addr = pkt->tuple.src,
		.port = pkt->tuple.src_port,
	};

	if (!f)
		return 0;
	s.offset = f->members.offset;
	bpf_loop(f->members.size, try_address, &s, 0);
	return s.found ? s.choice.id : 0;
}

/* The flags of the other direction of a flow. Not inlined, for the stack of the caller. */
static __noinline __u32 other_flags(const struct packet *pkt, __u32 state)
{
	__u32 flags = state & (FLOW_BYPASS | FLOW_HALF_OPEN);

	if (!(state & FLOW_HALF_OPEN))
		flags |= FLOW_SEEN;
	if (!(state & FLOW_ORIGINAL))
		flags |= FLOW_ORIGINAL;
	if (state & FLOW_TO_BACKEND)
		flags |= pkt->pod ? FLOW_REPLY | FLOW_FROM_POD : FLOW_REPLY;
	if (state & FLOW_REPLY)
		flags |= FLOW_TO_BACKEND;
	return flags;
}

/*
 * Adds the other direction of a flow again, which has made room for another: that of the packet
 * is given, with what the packet becomes, its state, and the time from before its backend was
 * checked. A flow that was half-open has to be confirmed as if it began now.
 */
GLOBAL_FUNC int restore_other(const struct packet *pkt, __u32 state,
			      __u64 now_ns)
{
	struct new_flow *n = empty_flow();

	if (!pkt || !n)
		return 0;
	n->now_ns = now_ns;
	if (state & FLOW_ORIGINAL && pkt->l4_proto != IPPROTO_TCP)
		n->added_known = flow_time(now_ns);
	other_key(&n->key, &pkt->to, pkt->tuple.hook);
	other_key(&n->becomes, &pkt->tuple, pkt->tuple.hook);
	n->added_flags = other_flags(pkt, state);
	if (state & FLOW_REPLY) {
		n->added_known = replying_backend(pkt);
		if (!n->added_known)
			return 0;
	}
	if (add_flow(n) == FLOW_ADDED && !(state & FLOW_HALF_OPEN))
		count(flow_restored);
	return 0;
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Source ports: a reply tuple must be of one flow only. Where another flow has it,
 * the new one gets another port, always in the same order for the same client: so
 * the reply direction is found again when the original one is lost.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../flow/room.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "../lib/csum.h"
#include "../lib/time.h"
#include "flow.h"
#include "packet.h"

#define SNAT_TRIES 32
#define SNAT_SAMPLE 8 /* tries after which a half-open flow has to go */

/* One of the ports that the node's own sockets do not choose. */
static __always_inline __be16 snat_port(__u32 number)
{
	return bpf_htons(snat_port_low + (number & snat_port_mask));
}

/*
 * Spreads a number that differs in any of its bits over all of them, and above all
 * over the lower ones: the last byte of an address is the highest of its word.
 */
static __always_inline __u32 spread(__u32 n)
{
	n ^= n >> 16;
	n *= 0x85ebca6b;
	n ^= n >> 13;
	n *= 0xc2b2ae35;
	return n ^ n >> 16;
}

/* First port to try; the client is the destination of the reply tuple. */
static __always_inline __u32 first_number(const struct tuple *reply)
{
	__u32 n = spread(ports_word(reply));

	for (int i = 0; i < 4; i++) {
		n = spread(n ^ reply->dst.word[i]);
		n = n * 0x9e3779b1 ^ reply->src.word[i];
	}
	return spread(n);
}

static __always_inline void set_port(struct new_flow *n, __u32 i)
{
	if (i)
		n->to.src_port =
			snat_port(n->number + i * (n->number >> 16 | 1));
	other_key(&n->key, &n->to, n->sent.hook);
}

/* A flow has had its reply direction before, and goes on with it, as if it was new. */
static __always_inline void renew_reply(const struct new_flow *n,
					const struct found *reply)
{
	__u32 clear = FLOW_CLOSING | FLOW_BROKEN | FLOW_TIME_MASK;

	if (!(n->flags & FLOW_HALF_OPEN) && reply->seen & FLOW_SEEN)
		clear |= FLOW_HALF_OPEN;
	if (n->sent.protocol != IPPROTO_TCP)
		set_known(reply, reply->flow->known, n->added_known);
	change_state(reply->state, reply->seen, clear,
		     flow_time(n->now_ns) << FLOW_TIME_SHIFT);
}

/* Has another flow ended that has the reply tuple? If it may have to go, it is noted. */
static __always_inline bool gives_up_port(struct new_flow *n,
					  const struct found *old,
					  const struct found *original)
{
	__u32 idle = both_idle(old->seen, original->seen, n->now_ns);

	if (has_ended(old->seen, original->seen, n->now_ns))
		return true;
	if (may_have_to_go(old->seen, original->seen, n->now_ns) &&
	    (!n->oldest_port || idle > n->most_idle)) {
		n->most_idle = idle;
		n->oldest_port = n->to.src_port;
	}
	return false;
}

/*
 * Adds the reply direction, unless its key belongs to another flow that goes on. One
 * that has ended loses both directions.
 */
static __always_inline enum added insert_reply(struct new_flow *n)
{
	enum added added = add_flow(n);
	struct found old, original;

	if (added != FLOW_EXISTS || !find_flow(&n->key, &old))
		return added;
	if (leads_to(old.flow, &n->becomes)) {
		renew_reply(n, &old);
		return FLOW_ADDED;
	}
	if (find_other(&n->key, old.flow, &original)) {
		if (!gives_up_port(n, &old, &original))
			return FLOW_EXISTS;
		remove_flow(&original);
	}
	remove_flow(&old);
	return add_flow(n);
}

/* One try; 1 ends the search. A callback, so that it is verified once. */
static long try_port(__u32 i, void *data)
{
	struct new_flow *n = *(struct new_flow **)data;
	enum added added;

	if (i >= SNAT_SAMPLE && n->oldest_port)
		return 1;
	set_port(n, i);
	added = insert_reply(n);
	n->result = added;
	return added != FLOW_EXISTS;
}

/* The same for a reply direction that must be there. */
static long find_port(__u32 i, void *data)
{
	struct new_flow *n = *(struct new_flow **)data;
	struct found reply;

	set_port(n, i);
	if (!find_flow(&n->key, &reply) || !leads_to(reply.flow, &n->becomes))
		return 0;
	renew_reply(n, &reply);
	n->result = FLOW_ADDED;
	return 1;
}

/* Lets the flow go that was silent for longest of those that may have to. */
static __noinline enum added take_oldest(struct new_flow *n)
{
	struct found old, original;

	n->to.src_port = n->oldest_port;
	set_port(n, 0);
	if (!find_flow(&n->key, &old))
		return add_flow(n);
	if (find_other(&n->key, old.flow, &original))
		remove_flow(&original);
	remove_flow(&old);
	return add_flow(n);
}

/*
 * Adds the reply direction of a flow, which may get another source port: FLOW_EXISTS if
 * there is none. Without begins there is a reply direction already, or the connection
 * cannot go on.
 */
GLOBAL_FUNC int add_reply(struct new_flow *n, bool begins, bool pod)
{
	if (!n)
		return FLOW_EXISTS;
	other_key(&n->becomes, &n->sent, n->sent.hook);
	n->number = first_number(&n->becomes);
	n->result = FLOW_EXISTS;
	n->added_flags = n->flags & (FLOW_BYPASS | FLOW_SEEN | FLOW_UNSENT |
				     FLOW_HALF_OPEN);
	if (n->flags & FLOW_TO_BACKEND)
		n->added_flags |= FLOW_REPLY;
	if (pod)
		n->added_flags |= FLOW_FROM_POD;
	if (n->sent.protocol != IPPROTO_TCP)
		n->added_known = flow_time(n->now_ns);
	if (begins ? !try_port(0, &n) :
		     !find_port(0, &n)) /* mostly it is free */
		bpf_loop(SNAT_TRIES, begins ? try_port : find_port, &n, 0);
	if (n->result == FLOW_EXISTS && n->oldest_port)
		return take_oldest(n);
	return n->result;
}

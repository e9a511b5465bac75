/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Source ports: a reply tuple must be of one flow only. Where another flow has it,
 * the new one gets another port, always in the same order for the same client: so
 * the reply direction is found again when the original one is lost.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../flow/one_sided.h"
#include "../flow/room.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "../lb/client.h"
#include "../lib/addr.h"
#include "../lib/csum.h"
#include "../lib/time.h"
#include "flow.h"
#include "packet.h"

/*
 * The search tries so many ports at most, and shared ones after so many others. After a sample
 * a flow makes room that may go: a half-open one that is silent, or one that only seems to have
 * ended. The sample of half-open flows has 16 tries among all ports: with half of them free one
 * search in 65,000 meets none. Each try costs 0.1 to 0.4 us, and a flood of SYNs pays for it.
 */
#define SNAT_TRIES 512
#define SNAT_UNSHARED_TRIES 16
#define SNAT_HALF_OPEN_SAMPLE 32
#define SNAT_ONE_SIDED_SAMPLE 64
#define SNAT_SCARCE 128 /* tries that all met flows which go on */

#define GOLDEN_RATIO \
	0x9e3779b1U /* of 2^32: its multiples lie far from each other */

/* One of so many numbers, by one of 32 bits. */
static __always_inline __u32 scale(__u32 number, __u32 size)
{
	return (__u64)number * size >> 32;
}

/* A source port: one that is not shared with the node's own sockets, or any. */
static __always_inline __be16 snat_port(__u32 number, bool any)
{
	return bpf_htons(snat_first + scale(number, any || !snat_unshared ?
							    snat_ports :
							    snat_unshared));
}

/* May a flow keep the port of its client, since it is not shared? */
static __always_inline bool is_snat_port(__be16 port)
{
	return (__u32)bpf_ntohs(port) - snat_first < snat_unshared;
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

/* The port of a try: first the one that the flow has already. */
static __always_inline void set_port(struct new_flow *n, __u32 i)
{
	if (i)
		n->to.src_port = snat_port(n->number + i * GOLDEN_RATIO,
					   i >= SNAT_UNSHARED_TRIES);
	other_key(&n->key, &n->to, n->sent.hook);
}

/*
 * A flow has had its reply direction before, or another CPU has just added it, and goes on
 * with it, as if it was new. It is another's then: who added it cannot give it back. False
 * if it has changed hands meanwhile.
 */
static __always_inline bool renew_reply(const struct new_flow *n,
					const struct found *reply)
{
	__u32 clear = FLOW_CLOSING | FLOW_BROKEN | FLOW_TIME_MASK |
		      FLOW_GENERATIONS;

	if (!(n->flags & FLOW_HALF_OPEN) && reply->seen & FLOW_SEEN)
		clear |= FLOW_HALF_OPEN;
	if (n->sent.protocol != IPPROTO_TCP)
		set_known(reply, reply->flow->known, n->added_known);
	return change_state(reply->state, reply->seen, clear,
			    (n->flags & FLOW_HALF_OPEN) |
				    next_generation(reply->seen) |
				    flow_time(n->now_ns) << FLOW_TIME_SHIFT) !=
	       FLOW_BUSY;
}

/* Notes that a network, or a kind of flow, holds the port that is tried. */
static __always_inline void note_holder(struct port_holder *h, __u32 idle,
					__be16 port)
{
	h->flows++;
	if (h->idle_port && idle <= h->most_idle)
		return;
	h->most_idle = idle;
	h->idle_port = port;
}

/*
 * Notes whose flow holds the port that is tried. Each network that has more than a fifth of them
 * is known in the end, with less than it has by at most a fifth of the others (Misra and Gries,
 * Finding repeated elements, 1982). Not inlined, for the stack of the caller.
 */
static __noinline int note_network(struct new_flow *n, const struct flow *old,
				   __u32 idle, bool bypass)
{
	__u32 network = network_of(&old->to);
	struct port_holder *unused = NULL;

	n->taken++;
	if (bypass) /* a socket of the node has the port, too */
		return 0;
	note_holder(&n->any, idle, n->to.src_port);
#pragma unroll
	for (int i = 0; i < PORT_NETWORKS; i++) {
		struct port_holder *h = &n->networks[i];

		if (!h->flows) {
			unused = h;
		} else if (h->network == network) {
			note_holder(h, idle, n->to.src_port);
			return 0;
		}
	}
	if (unused) {
		unused->network = network;
		unused->idle_port = 0;
		note_holder(unused, idle, n->to.src_port);
		return 0;
	}
#pragma unroll
	for (int i = 0; i < PORT_NETWORKS; i++)
		n->networks[i].flows--;
	return 0;
}

/* Has another flow ended that has the reply tuple? If it goes on, its holder is noted. */
static __always_inline bool gives_up_port(struct new_flow *n,
					  const struct found *old,
					  const struct found *original)
{
	__u32 idle = both_idle(old->seen, original->seen, n->now_ns);

	if (has_ended(old->seen, original->seen, n->now_ns))
		return true;
	note_network(n, old->flow, idle, old->seen & FLOW_BYPASS);
	if (may_have_to_go(old->seen, original->seen, n->now_ns))
		note_holder(&n->half_open, idle, n->to.src_port);
	else if (seems_ended(old->seen, original->seen, n->now_ns))
		note_holder(&n->one_sided, idle, n->to.src_port);
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
		if (!renew_reply(n, &old))
			added = add_flow(n);
		return added == FLOW_EXISTS ? FLOW_ADDED : added;
	}
	if (find_other(&n->key, old.flow, &original)) {
		if (!gives_up_port(n, &old, &original))
			return FLOW_EXISTS;
		remove_flow(&original);
	}
	remove_flow(&old);
	return add_flow(n);
}

/*
 * Is there a flow that may go, after so many tries that all met one which goes on? A handshake
 * under way makes room only after all tries. It still does so before a flow that seems to have
 * ended: forged SYNs displace each other first.
 */
static __always_inline bool has_tried(const struct new_flow *n, __u32 tries)
{
	if (n->half_open.idle_port)
		return tries >= SNAT_HALF_OPEN_SAMPLE &&
		       n->half_open.most_idle > flow_times(IDLE_CLOSED_S);
	return tries >= SNAT_ONE_SIDED_SAMPLE && n->one_sided.idle_port;
}

/* One try; 1 ends the search. A callback, so that it is verified once. */
static long try_port(__u32 i, void *data)
{
	struct new_flow *n = *(struct new_flow **)data;
	enum added added;

	if (i < n->from)
		return 0;
	if (has_tried(n, i))
		return 1;
	set_port(n, i);
	added = insert_reply(n);
	n->from = i + 1;
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

/* Lets a flow go whose port another gets. */
static __noinline enum added take_port(struct new_flow *n, __be16 port)
{
	struct found old, original;

	n->to.src_port = port;
	set_port(n, 0);
	if (!find_flow(&n->key, &old))
		return add_flow(n);
	if (find_other(&n->key, old.flow, &original))
		remove_flow(&original);
	remove_flow(&old);
	return add_flow(n);
}

/* The network that holds the most ports, as far as is known. */
static __always_inline const struct port_holder *
greatest_network(const struct new_flow *n)
{
	const struct port_holder *most = &n->networks[0];

#pragma unroll
	for (int i = 1; i < PORT_NETWORKS; i++)
		if (n->networks[i].flows > most->flows)
			most = &n->networks[i];
	return most;
}

/*
 * The port of the flow that has to go where all that were tried are taken: of the half-open ones,
 * else of those that are one-sided, of all if that is two hours and more, or of the network that
 * has more than its share, a quarter, the one that was silent for longest. Where no network has so
 * many it is the one that was silent for longest of all, if that is a minute. 0 for none.
 */
static __always_inline __be16 port_to_take(const struct new_flow *n)
{
	const struct port_holder *most = greatest_network(n);

	if (n->half_open.idle_port)
		return n->half_open.idle_port;
	if (n->one_sided.idle_port)
		return n->one_sided.idle_port;
	if (n->any.most_idle > flow_times(IDLE_ESTABLISHED_S))
		return n->any.idle_port;
	if (most->flows * 4 > n->taken &&
	    most->most_idle >= flow_times(IDLE_CLOSED_S))
		return most->idle_port;
	return n->any.most_idle >= flow_times(IDLE_ENDED_S) ? n->any.idle_port :
							      0;
}

/*
 * Adds the reply direction of a flow, which may get another source port: FLOW_EXISTS if
 * there is none. Without begins there is a reply direction already, or the connection
 * cannot go on.
 */
GLOBAL_FUNC int add_reply(struct new_flow *n, bool begins, bool pod)
{
	__be16 port;

	if (!n)
		return FLOW_EXISTS;
	other_key(&n->becomes, &n->sent, n->sent.hook);
	n->result = FLOW_EXISTS;
	n->added_flags = n->flags & (FLOW_BYPASS | FLOW_SEEN | FLOW_UNSENT |
				     FLOW_HALF_OPEN);
	if (n->flags & FLOW_TO_BACKEND)
		n->added_flags |= FLOW_REPLY;
	if (pod)
		n->added_flags |= FLOW_FROM_POD;
	if (n->sent.protocol != IPPROTO_TCP)
		n->added_known = flow_time(n->now_ns);
	/* Mostly the first one is free. */
	if (begins ? !try_port(0, &n) : !find_port(0, &n)) {
		n->number = first_number(&n->becomes);
		bpf_loop(SNAT_TRIES, begins ? try_port : find_port, &n, 0);
	}
	port = begins && n->result == FLOW_EXISTS ? port_to_take(n) : 0;
	return port ? take_port(n, port) : n->result;
}

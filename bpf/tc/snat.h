/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Source ports: a reply tuple must be of one flow only. Where another flow has it,
 * the new one gets another port, always in the same order for the same client: so
 * the reply direction is found again when the original one is lost.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/csum.h"
#include "../lib/time.h"
#include "flow.h"
#include "half_open.h"
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

/* The search for a source port with which the reply tuple is free. */
struct port_search {
	struct tuple *to;
	const struct flow *reply;
	__u64 oldest_ns; /* when a flow was last seen that may have to go */
	__u32 number;
	__be16 oldest_port; /* its port, 0 for none */
	__u8 hook;	    /* enum hook, of the reply direction */
	bool found;
};

static __always_inline void set_port(struct port_search *s, __u32 i)
{
	if (i)
		s->to->src_port =
			snat_port(s->number + i * (s->number >> 16 | 1));
}

static __always_inline void reply_key(const struct port_search *s,
				      struct tuple *key)
{
	other_key(key, s->to, other_hook(s->hook));
}

/* Adds the reply direction in place of a flow that loses both directions. */
static __always_inline bool replace_reply(const struct port_search *s,
					  const struct flow *old)
{
	struct tuple key;

	other_key(&key, &old->to, s->hook);
	flow_closed(bpf_map_lookup_elem(&conntrack, &key));
	bpf_map_delete_elem(&conntrack, &key);
	reply_key(s, &key);
	return !bpf_map_update_elem(&conntrack, &key, s->reply, BPF_ANY);
}

/*
 * Is the reply direction that is there, if any, the one to be added? Then it is of the
 * new flow from now on, and valid again.
 */
static __always_inline bool renew_reply(const struct port_search *s,
					struct flow *old)
{
	if (!old || !same_tuple(&old->to, &s->reply->to))
		return false;
	old->frontend = s->reply->frontend;
	old->service = s->reply->service;
	old->backend_id = s->reply->backend_id;
	old->slot = s->reply->slot;
	clear_flow_flags(old, FLOW_CLOSING | FLOW_BROKEN | FLOW_HALF_OPEN);
	return true;
}

/*
 * Adds the reply direction, unless its key belongs to another flow that goes on. One
 * that has ended loses both directions.
 */
static __always_inline bool insert_reply(struct port_search *s)
{
	__u64 now = s->reply->last_seen_ns, last;
	struct flow *old, *original;
	struct tuple key;

	reply_key(s, &key);
	if (!bpf_map_update_elem(&conntrack, &key, s->reply, BPF_NOEXIST))
		return true;
	old = bpf_map_lookup_elem(&conntrack, &key);
	if (!old)
		return false;
	if (renew_reply(s, old))
		return true;
	other_key(&key, &old->to, s->hook);
	original = bpf_map_lookup_elem(&conntrack, &key);
	if (!original || has_ended(old, original, now))
		return replace_reply(s, old);
	last = last_seen(old, original);
	if (may_have_to_go(old, original, now) &&
	    (!s->oldest_port || elapsed(s->oldest_ns, last))) {
		s->oldest_ns = last;
		s->oldest_port = s->to->src_port;
	}
	return false;
}

/* One try; 1 ends the search. A callback, so that it is verified once. */
static long try_port(__u32 i, void *data)
{
	struct port_search *s = data;

	if (i >= SNAT_SAMPLE && s->oldest_port)
		return 1;
	set_port(s, i);
	s->found = insert_reply(s);
	return s->found;
}

/* The same for a reply direction that must be there. */
static long find_port(__u32 i, void *data)
{
	struct port_search *s = data;
	struct flow *old;
	struct tuple key;

	set_port(s, i);
	reply_key(s, &key);
	old = bpf_map_lookup_elem(&conntrack, &key);
	s->found = renew_reply(s, old);
	return s->found;
}

/* Lets the flow go that was silent for longest of those that may have to. */
static __always_inline bool take_oldest(struct port_search *s)
{
	struct flow *old;
	struct tuple key;

	s->to->src_port = s->oldest_port;
	reply_key(s, &key);
	old = bpf_map_lookup_elem(&conntrack, &key);
	return old ? replace_reply(s, old) : false;
}

/*
 * Adds the reply direction of a flow whose packets become *to, which may get another
 * source port; false if there is none. Without begins there is one already, or the
 * connection cannot go on.
 */
static __always_inline bool add_reply(struct tuple *to, enum hook reply_hook,
				      const struct flow *reply, bool begins)
{
	struct port_search s = {
		.to = to,
		.reply = reply,
		.number = first_number(&reply->to),
		.hook = reply_hook,
	};

	if (!begins) {
		bpf_loop(SNAT_TRIES, find_port, &s, 0);
		return s.found;
	}
	bpf_loop(SNAT_TRIES, try_port, &s, 0);
	if (!s.found && s.oldest_port)
		return take_oldest(&s);
	return s.found;
}

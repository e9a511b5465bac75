/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A flow is brief until both sides have shown that they are there: after the
 * handshake of TCP, and with datagrams after question, answer and question. A
 * TCP connection that both sides have closed is brief again.
 *
 * Every brief flow has a place in a ring. Whoever takes the place makes the
 * flow that had it go, if that is still brief. So there are never more brief
 * flows than places, however many SYNs come from addresses that nobody has, and
 * those that work keep the rest of the table; and to tell the classes apart
 * costs later packets nothing, as a second table would.
 */
#pragma once

#include "affinity.h"
#include "config.h"
#include "flow_load.h"
#include "packet.h"

/* Idle seconds after which the port of a flow may be another's. */
#define IDLE_CLOSED_S 1		/* closed by both, where ports are scarce */
#define IDLE_ENDED_S 60		/* closed, or never confirmed */
#define IDLE_ESTABLISHED_S 7440 /* RFC 5382: two hours and four minutes */

static __always_inline enum hook other_hook(__u8 hook)
{
	return hook == HOOK_IN ? HOOK_OUT : HOOK_IN;
}

/* Writes the key of the other way of a flow that is seen at a hook. */
static __always_inline void other_key(struct tuple *key, const struct tuple *to,
				      __u8 hook)
{
	key->src = to->dst;
	key->dst = to->src;
	key->src_port = to->dst_port;
	key->dst_port = to->src_port;
	key->protocol = to->protocol;
	key->hook = other_hook(hook);
	key->pad[0] = key->pad[1] = 0;
}

/* Forgets both ways of a flow. */
static __always_inline void forget_flow(struct tuple *key, struct flow *flow)
{
	struct tuple other;

	other_key(&other, &flow->to, key->hook);
	flow_closed(flow);
	flow_closed(bpf_map_lookup_elem(&conntrack, &other));
	bpf_map_delete_elem(&conntrack, &other);
	bpf_map_delete_elem(&conntrack, key);
}

/* Takes the next place for the flow with a key, and returns it. */
STEP __u32 take_place(const struct tuple *key)
{
	__u32 zero = 0, place = 0, *next;
	struct tuple *at, old;
	struct flow *flow;

	next = bpf_map_lookup_elem(&next_brief_flow, &zero);
	if (!next || !key)
		return 0;
	place = __sync_fetch_and_add(next, 1) & brief_flows_mask;
	at = bpf_map_lookup_elem(&brief_flows, &place);
	if (!at)
		return 0;
	old = *at;
	*at = *key;
	flow = bpf_map_lookup_elem(&conntrack, &old);
	if (flow && flow->flags & FLOW_BRIEF && flow->place == place) {
		forget_flow(&old, flow);
		count(flow_expired);
	}
	return place;
}

/* When a packet of a flow, of which both ways are given, was last noted. */
static __always_inline __u64 last_seen(const struct flow *back,
				       const struct flow *way)
{
	if ((__s64)(way->last_seen_ns - back->last_seen_ns) > 0)
		return way->last_seen_ns;
	return back->last_seen_ns;
}

/*
 * Has a flow ended? A connection that is open may be silent for long; datagrams,
 * what is closed and what nobody confirmed may not.
 */
static __always_inline bool has_ended(const struct flow *back,
				      const struct flow *way, __u64 now)
{
	__u64 limit = IDLE_ESTABLISHED_S;

	if ((back->flags | way->flags) & (FLOW_CLOSING | FLOW_BRIEF) ||
	    !(back->flags & FLOW_SEEN))
		limit = IDLE_ENDED_S;
	else if (back->to.protocol != IPPROTO_TCP)
		limit = udp_flow_timeout_s;
	return (__s64)(now - last_seen(back, way)) >
	       (__s64)(limit * NSEC_PER_SEC);
}

/* May a flow have to go where ports are scarce? It may not the moment it closes. */
static __always_inline bool may_have_to_go(const struct flow *back,
					   const struct flow *way, __u64 now)
{
	if (!((back->flags | way->flags) & FLOW_BRIEF))
		return false;
	return !((back->flags | way->flags) & FLOW_CLOSING) ||
	       (__s64)(now - last_seen(back, way)) >
		       (__s64)(IDLE_CLOSED_S * NSEC_PER_SEC);
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A flow is half-open, or brief, until both sides have shown that they are
 * there: after the handshake of TCP, and with datagrams after question, answer and
 * question. A TCP connection that both sides have closed is brief again.
 *
 * Every brief flow has a place in a ring. Whoever takes the place makes the
 * flow that had it go, if that is still brief. So there are never more brief
 * flows than places, however many SYNs come from addresses that nobody has, and
 * those that work keep the rest of the table; and to tell the classes apart
 * costs later packets nothing, as a second table would.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "flow.h"

/* Of a brief flow that has no place yet. */
#define NO_PLACE 0xffffffff

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

/* Idle seconds after which the port of a flow that both sides have closed may be
 * another's, where ports are scarce. */
#define IDLE_CLOSED_S 1

/* May a flow have to go where ports are scarce? It may not the moment it closes. */
static __always_inline bool may_have_to_go(const struct flow *back,
					   const struct flow *way, __u64 now)
{
	if (!((back->flags | way->flags) & FLOW_BRIEF))
		return false;
	return !((back->flags | way->flags) & FLOW_CLOSING) ||
	       elapsed(now, last_seen(back, way)) >
		       IDLE_CLOSED_S * NSEC_PER_SEC;
}

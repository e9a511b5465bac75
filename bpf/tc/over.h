/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* When a connection of TCP is over, so that a SYN by the same port begins another one. */
#pragma once

#include "../abi/maps.h"
#include "../flow/table.h"
#include "../lb/table.h"
#include "classify.h"
#include "packet.h"
#include "restore.h"

/* Have both sides closed a connection, by the state of one direction? */
static __always_inline bool is_closed(__u32 state)
{
	return !(~state & (FLOW_CLOSING | FLOW_HALF_OPEN));
}

/* Would a client that begins just now be given the backend of a flow? */
static __always_inline bool takes_new(const struct packet *pkt,
				      const struct flow *flow)
{
	struct frontend *f =
		frontend_of_flow(&flow->dst, flow->dst_port, flow->protocol);
	__u32 slot;

	return f && table_has(table_of(read_view(&f->views[client_view(pkt)])),
			      flow->known, &slot);
}

/*
 * Is a connection over, whose original direction has no confirmation, or none any more? Then
 * the client's port has come again with a SYN, and the choice is a new one: the backend before
 * may drain. One that a single side has reset may live, since that may be forged at some
 * expense, so it keeps its backend as long as new ones get that, too. Not inlined, for the
 * stack of the caller.
 */
static __noinline bool is_over(const struct packet *pkt,
			       const struct flow *flow, __u32 state)
{
	struct found other;

	if (!find_other(&pkt->tuple, flow, &other))
		return is_closed(state);
	if (state & other.seen & FLOW_CLOSING)
		return true;
	return (state | other.seen) & FLOW_CLOSING && !takes_new(pkt, flow);
}

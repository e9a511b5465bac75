/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Kept flows. A backend outside, where no agent runs, takes what is carried there and passes
 * nothing on: once a slot names another, nobody but the node where packets come in could know
 * where a connection lives. So that keeps a flow of each. It is a plain entry of the flow
 * table, of one direction: answers go straight to the client.
 *
 * Nothing that a client sends proves that it is one, since no answer is seen. So kept flows
 * have the share of datagrams, whatever they are of (flow/room.h), and are confirmed by a
 * packet that comes after the first. Where one makes room for another nothing is lost before its
 * slot has moved.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../carry/ring.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "../lb/health.h"
#include "../lib/addr.h"
#include "../lib/verdict.h"
#include "flow.h"
#include "packet.h"

/* Is a flow kept, by its state? */
static __always_inline bool is_kept(__u32 state)
{
	return carrying && (state & FLOW_KEPT) == FLOW_KEPT;
}

/* Does what begins go to another backend than that of its kept flow, which is not well? */
static __always_inline bool is_forsaken(const struct flow *flow)
{
	struct backend *b = flow_backend(flow);

	return b && b->ejection == EJECTION_CONFIRMED;
}

/* Does a packet confirm a kept flow? Datagrams do once time has passed since the last one. */
static __always_inline bool confirms_kept(const struct packet *pkt, __u32 state,
					  __u64 now_ns)
{
	if ((state & (FLOW_HALF_OPEN | FLOW_CLOSING)) != FLOW_HALF_OPEN)
		return false;
	return pkt->l4_proto == IPPROTO_TCP ? !(pkt->tcp_flags & TCP_ENDS) :
					      flow_idle(state, now_ns) > 0;
}

/*
 * Notes a packet of a kept flow; true if that is confirmed by it. What closes it has it make room
 * before others, and stays: the last packet of a connection comes after its end.
 */
static __always_inline bool note_kept(const struct packet *pkt,
				      const struct found *f, __u64 now_ns)
{
	bool confirmed = confirms_kept(pkt, f->seen, now_ns);
	__u32 clear = FLOW_TIME_MASK, was,
	      set = FLOW_SEEN | flow_time(now_ns) << FLOW_TIME_SHIFT;

	if (confirmed)
		clear |= FLOW_HALF_OPEN;
	else if (pkt->tcp_flags & (TCP_FIN | TCP_RST))
		set |= FLOW_CLOSING | FLOW_HALF_OPEN;
	was = change_state(f->state, f->seen, clear, set);
	return confirmed &&
	       (was & (FLOW_HALF_OPEN | FLOW_BUSY)) == FLOW_HALF_OPEN;
}

/*
 * A packet of a kept flow, which becomes pkt->to, is carried to its backend. What that is no
 * longer carried to goes on as if the flow were none.
 */
static __always_inline enum verdict carry_kept(struct packet *pkt,
					       const struct found *f)
{
	struct backend *b = flow_backend(f->flow);
	__u32 home = b ? b->home : HOME_UNKNOWN;

	/* The checksum of the flow does not cover the backend ID. */
	if (!find_peer(home) || b->to.port != pkt->to.dst_port ||
	    !same_addr(&b->to.addr, &pkt->to.dst)) {
		remove_flow(f);
		return VERDICT_CONTINUE;
	}
	pkt->home = home;
	pkt->tried = 0;
	pkt->round = ROUND_WHOLE;
	return VERDICT_CARRY;
}

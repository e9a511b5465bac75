/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows of packets that do not come from a socket of this node. An entry says
 * what a packet with a tuple becomes at a hook: a plain exchange of tuples, the
 * same for both directions and both families. For client C, frontend F, backend B:
 *
 *	in   C → F  becomes  C → B     out  B → C  becomes  F → C
 *
 * and if B is on another node, so that its answers must come back here, the
 * packet gets the address of the device D where it leaves:
 *
 *	out  C → B  becomes  D → B     in   B → D  becomes  B → C
 *
 * The kernel in between, with its own conntrack, only ever sees C and B.
 *
 * Most packets find their entry and read it: one look-up, and no store. What is
 * to be asked or noted is so at the ends of a connection, once a second, and after
 * any Service has lost a backend.
 */
#pragma once

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "../flow/traffic.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "confirm.h"
#include "end.h"
#include "first_reply.h"
#include "flow.h"
#include "kept.h"
#include "noted.h"
#include "over.h"
#include "packet.h"
#include "recover.h"
#include "refuse.h"
#include "restore.h"

/*
 * Does the Service still have the backend of a flow to it? Some time its ID is
 * another backend's, and flows stay: the address has to be the same, too. Which
 * Service that is says the frontend, which the client has named in the key.
 */
GLOBAL_FUNC bool has_backend(const struct flow *flow)
{
	struct frontend *f;
	struct backend *b;
	__u32 slot;

	if (!flow)
		return false;
	f = frontend_of_flow(&flow->dst, flow->dst_port, flow->protocol);
	if (!f || !table_has(f->members, flow->known, &slot))
		return false;
	b = flow_backend(flow);
	return b && b->to.port == flow->to_dst_port &&
	       same_addr(&b->to.addr, &flow->to);
}

/*
 * A flow is broken in both directions: both sides get a reset, and it is not in
 * flight any more. Not inlined: the stack of its caller has no room to spare.
 */
static __noinline enum verdict break_flow(const struct packet *pkt,
					  const struct found *f)
{
	struct found other;
	__u32 was;

	was = change_state(f->state, f->seen, FLOW_COUNTED, FLOW_BROKEN);
	if (was & FLOW_BUSY)
		return VERDICT_CONTINUE; /* another flow has the way by now */
	if (find_other(&pkt->tuple, f->flow, &other))
		set_flow_flag(&other, FLOW_BROKEN);
	if (!(was & FLOW_BROKEN)) {
		flow_uncounted(f->flow, was);
		count(flow_broken);
	}
	return VERDICT_RESET;
}

/* How long ago a backend last left a Service, whichever, in units of flow_time. */
static __always_inline __u64 removal_age(__u64 now_ns)
{
	__u32 zero = 0;
	struct about *a = bpf_map_lookup_elem(&about, &zero);

	return elapsed(now_ns >> FLOW_TIME_NS_SHIFT,
		       (a ? a->removed_ns : now_ns) >> FLOW_TIME_NS_SHIFT);
}

/*
 * Had a flow its backend when it was noted, and has no Service lost one since? When one was noted
 * that was silent for hours does not say its state.
 */
static __always_inline bool is_checked(__u32 state, __u64 now_ns)
{
	__u32 idle = flow_idle(state, now_ns);

	return idle < removal_age(now_ns) &&
	       idle <= flow_times(IDLE_ESTABLISHED_S);
}

/*
 * Is a flow of datagrams in use by its reply direction? A server may stream for longer than its
 * client is silent. Not inlined, for the stack of the caller.
 */
static __noinline bool is_answered(const struct packet *pkt,
				   const struct found *f, __u64 now_ns)
{
	struct found reply;

	return find_other(&pkt->tuple, f->flow, &reply) &&
	       is_answering(&reply, now_ns) &&
	       leads_back(&pkt->tuple, reply.flow);
}

/*
 * Is a flow past the Services over, if the other side sends what may begin one? A connection is:
 * the other side opens another by the same ends. Datagrams are after a pause of both. The original
 * direction goes, too: the new flow takes its replies. Not inlined, for the stack of the caller.
 */
static __noinline bool is_bypass_over(const struct packet *pkt,
				      const struct found *reply, __u64 now_ns)
{
	struct found original;

	if (pkt->l4_proto != IPPROTO_TCP &&
	    (flow_idle(reply->seen, now_ns) <= flow_times(udp_flow_timeout_s) ||
	     is_answered(pkt, reply, now_ns)))
		return false;
	if (find_other(&pkt->tuple, reply->flow, &original) &&
	    leads_back(&pkt->tuple, original.flow))
		remove_flow(&original);
	return true;
}

/* Is a packet that comes in one of the replies of a flow past the Services? */
static __always_inline bool is_bypass_reply(const struct packet *pkt,
					    __u32 state)
{
	return pkt->tuple.hook == HOOK_IN &&
	       (state & (FLOW_BYPASS | FLOW_ORIGINAL)) == FLOW_BYPASS;
}

/*
 * Is a flow still valid for a packet? It needs a backend that the Service still
 * has, a connection must not be over, and datagrams must not have paused for too
 * long in both directions. Otherwise what may begin anew does (VERDICT_CONTINUE), and a connection
 * ends (VERDICT_RESET). While flows are handed over the kernel may have it by now
 * (VERDICT_ASK).
 */
static __always_inline enum verdict
check_flow(const struct packet *pkt, const struct found *f, __u64 now_ns)
{
	bool begins = may_begin(pkt), tcp = pkt->l4_proto == IPPROTO_TCP;
	__u32 state = f->seen;

	if (pkt->tuple.hook == HOOK_IN && !pkt->untracked && hands_over())
		return VERDICT_ASK;
	if (state & FLOW_BROKEN && !begins)
		return is_same_flow(*(volatile __u32 *)f->state, state) ?
			       VERDICT_RESET :
			       VERDICT_CONTINUE;
	if (state & FLOW_REFUSED && begins)
		return VERDICT_CONTINUE; /* there may be an endpoint by now */
	if (begins && is_bypass_reply(pkt, state) &&
	    is_bypass_over(pkt, f, now_ns))
		return VERDICT_CONTINUE;
	if (!(state & FLOW_TO_BACKEND) || only_follows(pkt))
		return VERDICT_PASS;
	if (begins && tcp && state & FLOW_HALF_OPEN &&
	    is_over(pkt, f->flow, state))
		return VERDICT_CONTINUE;
	if (begins && is_kept(state) && is_forsaken(f->flow))
		return VERDICT_CONTINUE;
	if (begins && !tcp &&
	    flow_idle(state, now_ns) > flow_times(udp_flow_timeout_s) &&
	    !is_answered(pkt, f, now_ns))
		return VERDICT_CONTINUE;
	if (!(state & FLOW_BROKEN) &&
	    (is_checked(state, now_ns) || has_backend(f->flow)))
		return VERDICT_PASS;
	return begins ? VERDICT_CONTINUE : break_flow(pkt, f);
}

/*
 * Is a packet one of many, with nothing to ask or to note? Datagrams that nobody
 * answers are noted more often, and not each.
 */
static __always_inline bool is_one_of_many(const struct packet *pkt,
					   const struct flow *flow, __u32 state,
					   __u64 now_ns)
{
	__u32 often = NOTE_TIMES;

	if (state & FLOW_HALF_OPEN)
		often = state & FLOW_DATAGRAMS ? 1 : 0;
	return !(pkt->tcp_flags & TCP_ENDS) &&
	       (state & (FLOW_SEEN | FLOW_BROKEN | FLOW_REFUSED)) ==
		       FLOW_SEEN &&
	       flow_idle(state, now_ns) < often && is_checked(state, now_ns) &&
	       !is_far_on(pkt, flow, state);
}

/* Notes that a flow lives and what the TCP flags say of its direction. */
static __always_inline __u32 note_state(const struct packet *pkt,
					const struct found *f, __u64 now_ns)
{
	__u32 clear = FLOW_TIME_MASK, set = FLOW_SEEN, was, known;

	if (pkt->tcp_flags & (TCP_FIN | TCP_RST))
		set |= FLOW_CLOSING;
	else if (pkt->tcp_flags & TCP_SYN)
		clear |= FLOW_CLOSING;
	known = *(volatile __u32 *)&f->flow->known;
	was = change_state(f->state, f->seen, clear,
			   set | flow_time(now_ns) << FLOW_TIME_SHIFT);
	if (was & (FLOW_ORIGINAL | FLOW_DATAGRAMS | FLOW_BUSY))
		return was;
	if (!(was & FLOW_HALF_OPEN)) {
		go_along(pkt, f, known);
		return was;
	}
	/* Of a connection whose backend was found without a flow the SYN never comes here. */
	if (pkt->tcp_flags & TCP_SYN)
		set_known(f, known, bpf_ntohl(pkt->tcp_seq) + 1);
	else if (!known && !(pkt->tcp_flags & TCP_RST))
		set_known(f, known, bpf_ntohl(pkt->tcp_seq));
	return was;
}

/* Notes how far a flow has got, of which both directions are there; returns enum noted. */
static __always_inline __u32 note_progress(const struct packet *pkt,
					   const struct found *f, __u32 was,
					   const struct found *other,
					   __u64 now_ns)
{
	if (is_half_confirmed(pkt, f, other)) {
		clear_flow_flag(f, FLOW_HALF_OPEN);
		clear_flow_flag(other, FLOW_HALF_OPEN);
	} else if (was & FLOW_HALF_OPEN) {
		if (confirms(pkt, f->seen, other, now_ns))
			return confirm(pkt, f, other);
	} else if (proves_end(pkt, f, other)) {
		set_flow_flag(f, FLOW_HALF_OPEN);
		set_flow_flag(other, FLOW_HALF_OPEN);
	}
	return 0;
}

/* That both directions are there is asked every 64 units of flow_time: 17 seconds. */
#define ASK_TIMES 64

/* Does a packet say something of the other direction, or may that be missing? */
static __always_inline bool asks_other(const struct packet *pkt, __u32 was,
				       __u64 now_ns)
{
	__u32 passed = flow_time(now_ns) ^ was >> FLOW_TIME_SHIFT;

	return pkt->tcp_flags & TCP_ENDS || was & FLOW_HALF_OPEN ||
	       is_first_reply(was) || passed & (0xffff & ~(ASK_TIMES - 1));
}

/*
 * Notes what a packet says of both directions of a flow, given what its state was before.
 * Returns enum noted.
 */
static __always_inline __u32 note_both(const struct packet *pkt,
				       const struct found *f, __u32 was,
				       __u64 now_ns)
{
	struct found other;
	bool there = find_other(&pkt->tuple, f->flow, &other);
	__u32 noted;

	note_end(pkt, f, there ? &other : NULL);
	if (!there) /* of what both sides have closed it is not missed */
		return is_closed(f->seen) ? 0 : NOTED_MISSING;
	if (is_first_reply(was))
		noted = note_first_reply(pkt, f, &other);
	else
		noted = note_repeat(pkt, f, was, &other, now_ns) |
			note_reset(pkt, was, &other);
	return noted | note_progress(pkt, f, was, &other, now_ns);
}

/* Is a flow to a backend confirmed, and not in flight yet? */
static __always_inline bool is_to_open(__u32 state)
{
	return (state & (FLOW_TO_BACKEND | FLOW_COUNTED | FLOW_HALF_OPEN |
			 FLOW_CLOSING | FLOW_BROKEN)) == FLOW_TO_BACKEND;
}

/*
 * Notes a packet of a flow, which was seen in a state. The time is from before the
 * backend was checked: a removal since then is the later one. Returns enum noted.
 */
GLOBAL_FUNC int note_packet(const struct packet *pkt, struct flow *flow,
			    __u32 *state, __u32 seen, __u64 now_ns)
{
	struct found f = { .flow = flow, .state = state };
	__u32 noted = 0;

	if (!pkt || !flow || !state)
		return 0;
	f.seen = seen;
	if (is_kept(seen))
		return note_kept(pkt, &f, now_ns) &&
				       pkt->l4_proto == IPPROTO_TCP ?
			       NOTED_CONFIRMED :
			       0;
	seen = note_state(pkt, &f, now_ns);
	if (seen & FLOW_BUSY)
		return 0;
	f.seen = *(volatile __u32 *)state;
	if (asks_other(pkt, seen, now_ns))
		noted = note_both(pkt, &f, seen, now_ns);
	f.seen = *(volatile __u32 *)state;
	if (is_to_open(f.seen))
		flow_opened(&f);
	return noted;
}

/*
 * A packet of a flow, whose ports are known, becomes what that says (VERDICT_REWRITE);
 * what has none goes on to the next step.
 */
GLOBAL_FUNC int follow_flow(struct packet *pkt)
{
	struct flow_traffic *traffic;
	struct found f = {};
	__u32 noted = 0, tag;
	enum verdict v;
	__u64 now_ns;

	if (!pkt)
		return VERDICT_PASS;
	if (!find_here(&pkt->tuple, &f, &tag, &traffic))
		return VERDICT_CONTINUE;
	pkt->to = pkt->tuple;
	if (!becomes(&pkt->to, f.flow, tag))
		return VERDICT_CONTINUE; /* it was given to another one just now */
	if (is_over_header(pkt))
		return refuse_packet(pkt, DROP_FRAGMENT, 0);
	now_ns = coarse_now();
	if (!is_one_of_many(pkt, f.flow, f.seen, now_ns)) {
		v = check_flow(pkt, &f, now_ns);
		if (v == VERDICT_CONTINUE)
			remove_flow(&f);
		if (v != VERDICT_PASS)
			return v;
		/* The check may have read the next flow of this key, to another backend. */
		if (may_begin(pkt) &&
		    !is_same_flow(*(volatile __u32 *)f.state, f.seen))
			return VERDICT_CONTINUE;
		if (!only_follows(pkt)) /* it has not asked for the backend */
			noted = note_packet(pkt, f.flow, f.state, f.seen,
					    now_ns);
	}
	/* One that goes just now leaves a direction that ages, and that others may have. */
	if (noted & NOTED_MISSING && is_same_flow(*f.state, f.seen))
		restore_other(pkt, f.seen, now_ns);
	if (noted & NOTED_TO_COUNT)
		count_noted(&f, noted);
	if (count_traffic && is_to_count(f.seen))
		count_packet_in(traffic, f.place, payload_len(pkt));
	count(flow_packet); /* after it: so the agent misses none */
	return is_kept(f.seen) ? carry_kept(pkt, &f) : VERDICT_REWRITE;
}

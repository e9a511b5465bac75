/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What packets of a new flow say about its backend: does it take the connection? */
#pragma once

#include "../abi/maps.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "../lb/client.h"
#include "../lb/health.h"
#include "../lib/time.h"
#include "flow.h"
#include "noted.h"
#include "packet.h"

/* Has the backend sent nothing yet? The state is that of the reply direction. */
static __always_inline bool is_first_reply(__u32 reply)
{
	return (reply & (FLOW_REPLY | FLOW_SEEN)) == FLOW_REPLY;
}

/* The client of a flow, given its reply direction. */
static __always_inline __u32 flow_client(const struct flow *reply, __u32 state)
{
	return client_id(&reply->dst, state & FLOW_FROM_POD);
}

/* Returns enum noted. */
static __always_inline __u32 note_first_reply(const struct packet *pkt,
					      const struct found *reply,
					      const struct found *original)
{
	struct backend *b = flow_backend(original->flow);

	if (!b || reply->seen & FLOW_UNSENT)
		return 0;
	if (pkt->tcp_flags & TCP_RST) {
		note_failure(b, flow_client(reply->flow, reply->seen), true);
		return failed_by(b, FAILURE_REFUSED);
	}
	if (is_news(b))
		note_success(b);
	return 0;
}

/*
 * The backend resets a connection that stood and that no side has closed, given the states of
 * both directions before that: so each counts once. Returns enum noted.
 */
static __always_inline __u32 note_reset(const struct packet *pkt, __u32 reply,
					const struct found *original)
{
	struct backend *b;

	if (!(pkt->tcp_flags & TCP_RST) || !(reply & FLOW_REPLY) ||
	    (reply | original->seen) & (FLOW_CLOSING | FLOW_HALF_OPEN))
		return 0;
	b = flow_backend(original->flow);
	return b ? failed_by(b, FAILURE_RESET) : 0;
}

/*
 * No stack sends a SYN again within half a second: a reply may still be on its way. In
 * units of flow_time it is never less, and a second is always more.
 */
#define REPEAT_TIMES 3

/*
 * A SYN that comes again after a while was not answered, if the other direction has
 * no packet, and if this node has let it pass. The connection counts as failed with the first
 * that comes again, before which its direction had one packet. Returns enum noted.
 */
static __always_inline __u32 note_repeat(const struct packet *pkt,
					 const struct found *f, __u32 was,
					 const struct found *other,
					 __u64 now_ns)
{
	struct backend *b;

	if ((pkt->tcp_flags & (TCP_SYN | TCP_ACK)) != TCP_SYN ||
	    !(f->seen & FLOW_TO_BACKEND) || !is_first_reply(other->seen) ||
	    other->seen & FLOW_UNSENT || flow_idle(was, now_ns) < REPEAT_TIMES)
		return 0;
	b = flow_backend(f->flow);
	if (!b)
		return 0;
	note_failure(b, client_id(&pkt->tuple.src, pkt->pod), true);
	return was & FLOW_SEEN ? 0 : failed_by(b, FAILURE_TIMED_OUT);
}

/*
 * An ICMP error says that the backend cannot be reached, of the flow with a key. Returns enum
 * noted: of TCP, where that ends a connection.
 */
static __always_inline __u32 note_unreachable(const struct tuple *key,
					      const struct found *reply)
{
	struct found original;
	struct backend *b;

	if (!is_first_reply(reply->seen) ||
	    !find_other(key, reply->flow, &original))
		return 0;
	b = flow_backend(original.flow);
	if (!b)
		return 0;
	note_failure(b, flow_client(reply->flow, reply->seen), true);
	return key->protocol == IPPROTO_TCP ?
		       failed_by(b, FAILURE_UNREACHABLE) :
		       0;
}

/*
 * A packet to a backend does not leave, for want of a port or an address: that the
 * backend is silent then says nothing about it.
 */
static __noinline int note_unsent(const struct packet *pkt)
{
	struct tuple key = reversed(&pkt->tuple);
	struct found reply;

	if (find_flow(&key, &reply))
		set_flow_flag(&reply, FLOW_UNSENT);
	return 0;
}

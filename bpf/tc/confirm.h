/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * When both sides of a flow have shown that they are there: until then it is half-open, and a
 * connection does not count.
 */
#pragma once

#include "../abi/maps.h"
#include "../flow/state.h"
#include "../flow/table.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "end.h"
#include "flow.h"
#include "noted.h"
#include "packet.h"

/*
 * An ACK within this window of the SYN proves that it was received; a blind guess
 * succeeds once in 4,096.
 */
#define HANDSHAKE_WINDOW (1 << 20)

/* Datagrams confirm a flow so many seconds after it began. */
#define DATAGRAMS_LIVE_S 2

/*
 * Does a packet of the original direction prove that its sender has received packets
 * of the reply? A reset or a FIN proves nothing that would be worth it. With datagrams
 * anybody can forge a second one: it takes time at least.
 */
static __always_inline bool confirms(const struct packet *pkt, __u32 state,
				     const struct found *reply, __u64 now_ns)
{
	__u32 known = reply->flow->known;

	if (!(state & FLOW_ORIGINAL) || !(reply->seen & FLOW_SEEN) ||
	    (state | reply->seen) & FLOW_CLOSING)
		return false;
	if (pkt->l4_proto != IPPROTO_TCP)
		return elapsed_ticks(flow_time(now_ns), known) >=
		       flow_times(DATAGRAMS_LIVE_S);
	return (pkt->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_ACK &&
	       bpf_ntohl(pkt->tcp_ack) - known < HANDSHAKE_WINDOW;
}

/*
 * Both sides have confirmed a flow, the last one by a packet of the original direction. Returns
 * enum noted.
 */
static __always_inline __u32 confirm(const struct packet *pkt,
				     const struct found *original,
				     const struct found *reply)
{
	__u32 known = reply->flow->known;

	if (!clear_flow_flag(original, FLOW_HALF_OPEN))
		return 0;
	if (pkt->l4_proto == IPPROTO_TCP)
		set_known(reply, known, began_at(pkt, known));
	clear_flow_flag(reply, FLOW_HALF_OPEN);
	count(flow_established);
	return pkt->l4_proto == IPPROTO_TCP &&
			       original->seen & FLOW_TO_BACKEND ?
		       NOTED_CONFIRMED :
		       0;
}

/*
 * Is a flow confirmed, and one direction does not say so? Another CPU was just moving
 * that to its other set, so that what was said to it was lost.
 */
static __always_inline bool is_half_confirmed(const struct packet *pkt,
					      const struct found *f,
					      const struct found *other)
{
	__u32 original = f->seen & FLOW_ORIGINAL ? f->seen : other->seen;

	return !(original & FLOW_HALF_OPEN) &&
	       (f->seen | other->seen) & FLOW_HALF_OPEN &&
	       !((f->seen | other->seen) & FLOW_CLOSING) &&
	       leads_back(&pkt->tuple, other->flow);
}

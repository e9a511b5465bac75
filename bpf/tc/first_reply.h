/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What packets of a new flow say about its backend: does it take the connection? */
#pragma once

#include "../abi/maps.h"
#include "../lb/client.h"
#include "../lb/health.h"
#include "../lib/time.h"
#include "flow.h"
#include "packet.h"

/* Has the backend sent nothing yet? The flow is the reply direction. */
static __always_inline bool is_first_reply(const struct flow *flow)
{
	return (flow->flags & (FLOW_REPLY | FLOW_SEEN)) == FLOW_REPLY;
}

/* The client of a flow, given its reply direction. */
static __always_inline __u32 flow_client(const struct flow *flow)
{
	return client_id(&flow->to.dst, flow->flags & FLOW_FROM_POD);
}

static __always_inline void note_first_reply(const struct packet *pkt,
					     const struct flow *flow)
{
	struct backend *b = flow_backend(flow);

	if (!b)
		return;
	if (pkt->tcp_flags & TCP_RST)
		note_failure(b, flow_client(flow), true);
	else if (is_news(b))
		note_success(b);
}

/* No stack sends a SYN again sooner: an answer may still be on its way. */
#define REPEAT_NS (NSEC_PER_SEC / 2)

/*
 * A SYN that comes again after a while was not answered, if the other direction has
 * no packet, and if this node has let it pass.
 */
static __always_inline void note_repeat(const struct packet *pkt,
					const struct flow *flow,
					const struct flow *other,
					__u64 silent_ns)
{
	struct backend *b;

	if ((pkt->tcp_flags & (TCP_SYN | TCP_ACK)) != TCP_SYN ||
	    !(flow->flags & FLOW_TO_BACKEND) || !is_first_reply(other) ||
	    other->flags & FLOW_UNSENT || silent_ns < REPEAT_NS)
		return;
	b = flow_backend(flow);
	if (b)
		note_failure(b, client_id(&pkt->tuple.src, pkt->pod), true);
}

/* An ICMP error says that the backend cannot be reached. */
static __always_inline void note_unreachable(const struct flow *flow)
{
	struct backend *b;

	if (!is_first_reply(flow))
		return;
	b = flow_backend(flow);
	if (b)
		note_failure(b, flow_client(flow), true);
}

/*
 * A packet to a backend does not leave, for want of a port or an address: that the
 * backend is silent then says nothing about it.
 */
static __noinline int note_unsent(const struct packet *pkt)
{
	struct tuple reply = reversed(&pkt->tuple);
	struct flow *flow = bpf_map_lookup_elem(&conntrack, &reply);

	if (flow)
		set_flow_flag(flow, FLOW_UNSENT);
	return 0;
}

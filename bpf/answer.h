/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What packets of a new flow say about its backend: does it take the connection? */
#pragma once

#include "health.h"
#include "ports.h"

/* Has the backend, whose way back this is, said nothing yet? */
static __always_inline bool is_first_answer(const struct flow *flow)
{
	return (flow->flags & (FLOW_BACK | FLOW_SEEN)) == FLOW_BACK;
}

static __always_inline struct backend *flow_backend(const struct flow *flow)
{
	__u32 id = flow->backend_id;

	return id ? bpf_map_lookup_elem(&backends, &id) : NULL;
}

static __always_inline void note_first_answer(const struct packet *pkt,
					      const struct flow *flow)
{
	struct backend *b = flow_backend(flow);

	if (!b)
		return;
	if (pkt->tcp_flags & TCP_RST)
		note_failure(b);
	else
		note_success(b);
}

/* A SYN that comes again was not answered, if nothing came by the other way. */
static __always_inline void note_repeat(const struct packet *pkt,
					const struct flow *flow,
					const struct flow *other)
{
	struct backend *b;

	if ((pkt->tcp_flags & (TCP_SYN | TCP_ACK)) != TCP_SYN ||
	    !(flow->flags & FLOW_TO_BACKEND) || !is_first_answer(other))
		return;
	b = flow_backend(flow);
	if (b)
		note_failure(b);
}

/* An ICMP error that came back says that nobody is there. */
static __always_inline void note_unreachable(const struct flow *flow)
{
	struct backend *b;

	if (!is_first_answer(flow))
		return;
	b = flow_backend(flow);
	if (b)
		note_failure(b);
}

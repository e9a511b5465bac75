/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows in flight. A flow counts from when it begins until both sides have closed
 * it, one has reset it, or it makes room for another. Of those that end unseen the
 * agent learns when it counts anew.
 */
#pragma once

#include "load.h"
#include "ports.h"

/* A flow to a backend begins, or begins again. */
static __always_inline void flow_opened(struct flow *way)
{
	__u32 id = way->backend_id;
	struct backend *b;

	if ((way->flags & (FLOW_TO_BACKEND | FLOW_COUNTED)) != FLOW_TO_BACKEND)
		return;
	b = bpf_map_lookup_elem(&backends, &id);
	if (!b || !id)
		return;
	way->flags |= FLOW_COUNTED;
	backend_opened(b);
}

/* A flow ends, whichever of its ways is given: only one of them is counted. */
static __always_inline void flow_closed(struct flow *flow)
{
	struct backend *b;
	__u32 id;

	if (!flow || !(flow->flags & FLOW_COUNTED))
		return;
	flow->flags &= ~FLOW_COUNTED;
	id = flow->backend_id;
	b = bpf_map_lookup_elem(&backends, &id);
	if (b && same_addr(&b->to.addr, &flow->to.dst) &&
	    b->to.port == flow->to.dst_port)
		one_less(b);
}

/* What a packet of TCP says of that; the other way of its flow may be NULL. */
static __always_inline void note_load(const struct packet *pkt,
				      struct flow *flow, struct flow *other)
{
	if (pkt->tcp_flags & TCP_RST || (pkt->tcp_flags & TCP_FIN && other &&
					 other->flags & FLOW_CLOSING)) {
		flow_closed(flow);
		flow_closed(other);
	} else if (pkt->tcp_flags & TCP_SYN) {
		flow_opened(flow);
	}
}

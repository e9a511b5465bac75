/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which packets may have to do with a Service? Most do not, see known.h. */
#pragma once

#include "frontend.h"
#include "packet.h"

/* May a packet be of a flow, or its answer? Of most it is clear that they are not. */
static __always_inline bool may_have_flow(const struct packet *pkt)
{
	const struct tuple *t = &pkt->tuple;

	return !pkt->plain || is_known_end(&t->dst, t->dst_port) ||
	       (t->hook == HOOK_OUT && is_known_end(&t->src, t->src_port));
}

/* May a packet without a flow begin one? */
static __always_inline bool may_be_balanced(const struct packet *pkt)
{
	return pkt->tuple.hook == HOOK_IN &&
	       (is_known_address(&pkt->tuple.dst) ||
		in_service_cidr(&pkt->tuple.dst));
}

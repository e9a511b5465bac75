/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What becomes of packets at the driver, for headgate trace, as long as that says that somebody
 * looks: each plain packet to an end that a Service or a flow may have, up to as many as a person
 * can read. The others are counted.
 *
 * Programs of its own before and behind this one (fentry, fexit) would need nothing here. Some kernels
 * refuse them, and they do not see what the program of others calls by a tail call.
 */
#pragma once

#include "../abi/maps.h"
#include "../lib/filter.h"
#include "../lib/told.h"
#include "../lib/verdict.h"
#include "../tc/packet.h"
#include "uplink.h"

static __always_inline __u32 first_buffer(struct xdp_md *ctx)
{
	return ctx->data_end - ctx->data;
}

/* Notes a packet as it comes. Never decides what happens. */
GLOBAL_FUNC int note_came(struct xdp_md *ctx)
{
	struct packet pkt = { .tuple.hook = HOOK_IN, .end = ~0U };
	struct told_packets *t = told_in(&driver_told);

	if (!t)
		return 0;
	t->len = 0;
	if (!read_here(ctx, &pkt) ||
	    (!flow_filter_has(&pkt.tuple.dst, pkt.tuple.dst_port) &&
	     !address_filter_has(&pkt.tuple.dst)) ||
	    !begin_to_tell(t, &pkt.tuple, ctx->ingress_ifindex))
		return 0;
	t->len = first_buffer(ctx);
	return 0;
}

/* Tells of the packet that came, and what it was sent as, if it was. */
GLOBAL_FUNC int tell_sent(struct xdp_md *ctx, int sent)
{
	struct packet pkt = { .tuple.hook = HOOK_IN, .end = ~0U };
	struct told_packets *t = told_in(&driver_told);
	struct told_packet *p;

	if (!t || !t->len)
		return 0;
	p = told_place(t, t->last + 1);
	p->verdict = TOLD_PASSED;
	if (sent != XDP_PASS) {
		p->verdict = first_buffer(ctx) > t->len ? TOLD_CARRIED :
							  TOLD_REPEATED;
		read_here(ctx, &pkt);
	}
	p->leaves = pkt.tuple;
	t->len = 0;
	end_telling(t, p);
	return 0;
}

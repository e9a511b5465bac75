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
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "../tc/packet.h"
#include "uplink.h"

/* Does somebody look? Whoever was killed does so no more when its time is over. */
static __always_inline bool is_traced(void)
{
	__u32 zero = 0;
	struct about *a = bpf_map_lookup_elem(&about, &zero);
	__u64 until_ns = a ? *(volatile __u64 *)&a->traced_until_ns : 0;

	return __builtin_expect(until_ns != 0, 0) && coarse_now() < until_ns;
}

static __always_inline struct told_packets *own_told(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&driver_told, &zero);
}

/* The place of the packet of a number. */
static __always_inline struct told_packet *told_place(struct told_packets *t,
						      __u64 number)
{
	return &t->packet[number % TOLD_PACKETS];
}

/* May one more be told of? */
static __always_inline bool has_room_to_tell(struct told_packets *t,
					     __u64 now_ns)
{
	if (elapsed(now_ns, t->since_ns) >= TOLD_EACH_MS * 1000000ULL) {
		t->since_ns = now_ns;
		t->told = 0;
	}
	if (t->told < TOLD_MOST) {
		t->told++;
		return true;
	}
	t->left_out++;
	return false;
}

static __always_inline __u32 first_buffer(struct xdp_md *ctx)
{
	return ctx->data_end - ctx->data;
}

/* Notes a packet as it comes. Never decides what happens. */
GLOBAL_FUNC int note_came(struct xdp_md *ctx)
{
	struct packet pkt = { .tuple.hook = HOOK_IN, .end = ~0U };
	struct told_packets *t = own_told();
	__u64 now_ns = bpf_ktime_get_ns();
	struct told_packet *p;

	if (!t)
		return 0;
	t->len = 0;
	if (!read_here(ctx, &pkt) ||
	    (!flow_filter_has(&pkt.tuple.dst, pkt.tuple.dst_port) &&
	     !address_filter_has(&pkt.tuple.dst)) ||
	    !has_room_to_tell(t, now_ns))
		return 0;
	p = told_place(t, t->last + 1);
	*(volatile __u64 *)&p->number = 0;
	p->at_ns = now_ns;
	p->ifindex = ctx->ingress_ifindex;
	p->came = pkt.tuple;
	t->len = first_buffer(ctx);
	return 0;
}

/* Tells of the packet that came, and what it was sent as, if it was. */
GLOBAL_FUNC int tell_sent(struct xdp_md *ctx, int sent)
{
	struct packet pkt = { .tuple.hook = HOOK_IN, .end = ~0U };
	struct told_packets *t = own_told();
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
	t->last++;
	*(volatile __u64 *)&p->number = t->last; /* now it may be read */
	return 0;
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * For a test: what becomes of a packet is decided at XDP, by the functions of the
 * hooks at TC. The frame is nothing but the tuple of a first packet, and becomes
 * what that is to be rewritten to.
 */
#include "tc/balance.h"

SEC("xdp")
int decide_at_xdp(struct xdp_md *ctx)
{
	struct tuple *frame = (void *)(long)ctx->data;
	struct packet pkt = { .plain = true, .hops = 64, .ifindex = 1 };

	if ((void *)(frame + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	pkt.tuple = *frame;
	pkt.l4_proto = pkt.tuple.protocol;
	pkt.tcp_flags = pkt.l4_proto == IPPROTO_TCP ? TCP_SYN : 0;
	pkt.init = pkt.l4_proto == IPPROTO_SCTP;
	if (decide(&pkt) != VERDICT_REWRITE)
		return XDP_DROP;
	frame = (void *)(long)ctx->data;
	if ((void *)(frame + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	*frame = pkt.to;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

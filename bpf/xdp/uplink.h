/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What becomes of a packet at the driver? Plain ones are repeated or carried. All else goes up
 * as it came, and TC sees it as if nobody had been there before: so nothing is done twice, and
 * every feature exists once.
 */
#pragma once

#include <linux/if_ether.h>

#include "../abi/config.h"
#include "../flow/table.h"
#include "../lib/filter.h"
#include "../lib/verdict.h"
#include "../tc/packet.h"
#include "../tc/parse.h"
#include "carry.h"
#include "repeat.h"

/* Reads a plain packet that a router may pass on. */
static __always_inline bool read_here(struct xdp_md *ctx, struct packet *pkt)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

	return (void *)(eth + 1) <= data_end &&
	       read_plain(data, data_end, eth->h_proto, pkt, ETH_HLEN) &&
	       pkt->hops > 1;
}

/* Is a packet of a flow, as far as this node knows? */
static __always_inline bool is_of_flow(const struct packet *pkt)
{
	struct flow_traffic *traffic;
	struct found f;
	__u32 tag;

	return find_here(&pkt->tuple, &f, &tag, &traffic);
}

/* Sends a packet as TC would, or leaves it to TC. */
static __always_inline int send_here(struct xdp_md *ctx)
{
	struct packet pkt = { .tuple.hook = HOOK_IN, .end = ~0U };
	int sent = XDP_PASS;
	bool ours;

	if (!express_sets || !read_here(ctx, &pkt))
		return XDP_PASS;
	ours = flow_filter_has(&pkt.tuple.dst, pkt.tuple.dst_port);
	if (ours)
		sent = repeat(ctx, &pkt);
	if (carrying && sent == XDP_PASS && (!ours || !is_of_flow(&pkt)))
		sent = carry_here(ctx, &pkt);
	if (ours && sent == XDP_PASS)
		count(flow_unrepeated);
	return sent;
}

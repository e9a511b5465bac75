/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is carried from where it comes in, a SYN, too: a hash says to which home, as at TC, and
 * nothing is kept of a connection. The next hop of a peer is what TC has found last, see
 * carry/way.h. What TC would not just carry it gets as it came.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "../abi/maps.h"
#include "../carry/outer.h"
#include "../carry/ring.h"
#include "../carry/way.h"
#include "../lb/frontend.h"
#include "../lb/table.h"
#include "../lib/addr.h"
#include "../lib/filter.h"
#include "../lib/verdict.h"
#include "../tc/carried.h"
#include "../tc/classify.h"
#include "../tc/home.h"
#include "../tc/packet.h"
#include "repeat.h"

/* The peer that a packet of no flow is carried to, as find_home says; NULL: TC sees to it. */
static __always_inline struct peer *find_peer_of(struct packet *pkt)
{
	struct addr_port at = {
		.addr = pkt->tuple.dst,
		.port = pkt->tuple.dst_port,
		.protocol = pkt->tuple.protocol,
	};
	struct peer *p;
	__u32 slot;

	if (!address_filter_has(&pkt->tuple.dst) || is_martian(&pkt->tuple) ||
	    is_discarded(pkt) || !has_common_slot(pkt, frontend_at(&at), &slot))
		return NULL;
	pkt->home = home_of(slot_at(slot));
	p = find_peer(pkt->home);
	/* Of what goes to a backend outside TC keeps flows. */
	return p && (p->flags & (PEER_USABLE | PEER_OUTSIDE)) == PEER_USABLE ?
		       p :
		       NULL;
}

/* Takes a hop off a packet that is carried, and reads its DSCP and ECN. */
static __always_inline bool pass_hop(void *inner, void *data_end,
				     struct outer *o)
{
	struct ipv6hdr *ip6 = inner;
	struct iphdr *ip = inner;

	if (!o->inner_ip4) {
		if ((void *)(ip6 + 1) > data_end)
			return false;
		ip6->hop_limit--;
		o->tos = bpf_ntohl(*(__be32 *)ip6) >> 20;
		return true;
	}
	if ((void *)(ip + 1) > data_end)
		return false;
	pass_hop4(ip, 0);
	o->tos = ip->tos;
	return true;
}

/* Puts an outer header before a packet that fits; false: it is as it was. */
static __always_inline bool put_outer_here(struct xdp_md *ctx,
					   const struct packet *pkt,
					   const struct peer *p,
					   const struct peer_way *w)
{
	struct outer o = outer_of(pkt, p, 0);
	__u32 len = outer_len(p);
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;

	if (!prove(&o, data + ETH_HLEN, data_end, false) ||
	    bpf_xdp_adjust_head(ctx, -(int)len))
		return false;
	data = (void *)(long)ctx->data;
	data_end = (void *)(long)ctx->data_end;
	/* Never false: all of it was there. */
	if (!pass_hop(data + ETH_HLEN + len, data_end, &o) ||
	    !write_outer(data, data_end, &o))
		return false;
	write_way(data, w);
	return true;
}

/* Is a packet longer with its outer header than what a peer gets, or its way takes? */
static __always_inline bool has_room(struct xdp_md *ctx,
				     const struct packet *pkt,
				     const struct peer *p,
				     const struct peer_way *w)
{
	__u32 outer = outer_len(p), most = most_of(p);

	return w->mtu > outer && fits(ctx, pkt, w->ifindex, w->mtu - outer) &&
	       (!most || frame_len(ctx, pkt) - ETH_HLEN <= most);
}

/* Carries a packet of no flow, or passes it on to TC. */
static __always_inline int carry_here(struct xdp_md *ctx, struct packet *pkt)
{
	struct peer *p = find_peer_of(pkt);
	const struct peer_way *w;

	if (!p)
		return XDP_PASS;
	w = known_way(pkt->home, ctx->ingress_ifindex);
	if (!w || !w->driven || !has_room(ctx, pkt, p, w) ||
	    !put_outer_here(ctx, pkt, p, w))
		return XDP_PASS;
	note_carried(pkt, frame_len(ctx, pkt) - ETH_HLEN);
	count(carried_at_driver);
	return send_by(ctx, w->ifindex, w->turns ? w->ifindex : 0);
}

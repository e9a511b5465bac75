/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is said and counted of a packet that is carried, whichever hook sends it. */
#pragma once

#include "../abi/maps.h"
#include "../carry/outer.h"
#include "../lb/client.h"
#include "packet.h"

/* What the outer header of a packet to a peer says, with DSCP and ECN of the packet. */
static __always_inline struct outer outer_of(const struct packet *pkt,
					     const struct peer *p, __u8 tos)
{
	return (struct outer){
		.peer = p,
		.len = pkt->end - pkt->l3_off,
		.inner_ip4 = pkt->ip4,
		.tos = tos,
		.tried = pkt->tried,
		.round = pkt->round,
		.flow_port = is_over_udp(p) ? flow_port(&pkt->tuple) : 0,
	};
}

/* Counts what is carried to a peer, in bytes with the outer header. */
static __always_inline void note_carried(const struct packet *pkt, __u32 bytes)
{
	struct peer_counts *c = counts_of(pkt->home);

	if (!c)
		return;
	c->carried++;
	c->carried_bytes += bytes;
	c->passed_on += pkt->carried;
	if (pkt->l4_proto != IPPROTO_TCP || pkt->fragment)
		return;
	if (pkt->tcp_flags & TCP_SYN) {
		c->carried_syn++;
		c->syn_networks |= 1ULL << network_of(&pkt->tuple.src) % 64;
		return;
	}
	c->carried_tcp++;
	if (c->syn_networks) /* seldom: else it stays unwritten */
		c->syn_networks = 0;
}

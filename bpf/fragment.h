/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Ports, of packets that have some and of fragments that have none. */
#pragma once

#include "packet.h"

/* The ports of a fragment that has none, from the first of its datagram. */
STEP bool fragment_ports(struct packet *pkt)
{
	struct fragment_key key = {};
	struct ports ports, *known;

	if (!pkt)
		return false;
	key.src = pkt->tuple.src;
	key.dst = pkt->tuple.dst;
	key.id = pkt->fragment_id;
	key.protocol = pkt->l4_proto;
	key.hook = pkt->tuple.hook;

	if (!pkt->fragment) {
		ports.src = pkt->tuple.src_port;
		ports.dst = pkt->tuple.dst_port;
		bpf_map_update_elem(&fragments, &key, &ports, BPF_ANY);
		return true;
	}
	known = bpf_map_lookup_elem(&fragments, &key);
	if (!known)
		return false;
	pkt->tuple.src_port = known->src;
	pkt->tuple.dst_port = known->dst;
	return true;
}

/* Fills in the ports; false if the packet has none that can be known. */
static __always_inline bool find_ports(struct __sk_buff *skb,
				       struct packet *pkt)
{
	if (!pkt->fragment && !parse_ports(skb, pkt))
		return false;
	return !(pkt->fragment || pkt->more_fragments) || fragment_ports(pkt);
}

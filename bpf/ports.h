/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The ports of a packet, its own or those of the first of its datagram. */
#pragma once

#include "packet.h"

#define TCP_FLAGS_OFF 13
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

static __always_inline bool has_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ||
	       protocol == IPPROTO_SCTP;
}

/* The shortest header of a protocol with ports, in bytes. */
static __always_inline __u32 l4_header_len(__u8 protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return 20;
	case IPPROTO_SCTP:
		return 12;
	default: /* UDP */
		return 8;
	}
}

/* Reads the ports at l4_off, of a packet that has some. */
static __always_inline bool parse_ports(struct __sk_buff *skb,
					struct packet *pkt)
{
	struct ports ports;

	if (bpf_skb_load_bytes(skb, pkt->l4_off, &ports, sizeof(ports)))
		return false;
	pkt->tuple.src_port = ports.src;
	pkt->tuple.dst_port = ports.dst;
	return true;
}

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

/*
 * Fills in ports and TCP flags; false if the packet has none that can be known,
 * or is cut short in its transport header, so that nothing begins with it.
 */
static __always_inline bool find_ports(struct __sk_buff *skb,
				       struct packet *pkt)
{
	__u32 end = pkt->l4_off + l4_header_len(pkt->l4_proto);

	if (pkt->end > skb->len)
		return false;
	if (!pkt->fragment && (pkt->end < end || !parse_ports(skb, pkt)))
		return false;
	if (!pkt->fragment && pkt->l4_proto == IPPROTO_TCP &&
	    bpf_skb_load_bytes(skb, pkt->l4_off + TCP_FLAGS_OFF,
			       &pkt->tcp_flags, sizeof(pkt->tcp_flags)))
		return false;
	return !(pkt->fragment || pkt->more_fragments) || fragment_ports(pkt);
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The ports of a packet, its own or those of the first of its datagram. */
#pragma once

#include "hold.h"
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

/*
 * The ports of a fragment that has none, from the first of its datagram, which
 * it may have to wait for.
 */
static __always_inline int later_ports(struct __sk_buff *skb,
				       struct packet *pkt,
				       const struct fragment_key *key)
{
	struct datagram *d = bpf_map_lookup_elem(&fragments, key);

	if (d && d->known)
		take_ports(pkt, d);
	else if (!has_ports(pkt->l4_proto) || !may_be_ours(pkt))
		return VERDICT_PASS;
	else if (hold(skb, pkt, key) != VERDICT_CONTINUE)
		return VERDICT_REFUSE;
	/* Nobody cuts a header in pieces without a reason (RFC 1858, RFC 3128). */
	if (pkt->fragment_off < l4_header_len(pkt->l4_proto))
		return refuse(DROP_FRAGMENT, 0);
	return VERDICT_CONTINUE;
}

/* Tells the other fragments of a datagram the ports, which the first one has. */
static __always_inline int first_ports(struct __sk_buff *skb,
				       struct packet *pkt,
				       const struct fragment_key *key)
{
	struct datagram *old = bpf_map_lookup_elem(&fragments, key);
	struct datagram d = {
		.ports = { pkt->tuple.src_port, pkt->tuple.dst_port },
		.protocol = pkt->l4_proto,
		.known = 1,
	};
	__u32 n = old && !old->known ? old->held : 0;

	bpf_map_update_elem(&fragments, key, &d, BPF_ANY);
	if (!n)
		return VERDICT_CONTINUE;
	return release(skb, key, n < HELD_FRAGMENTS ? n : HELD_FRAGMENTS);
}

STEP int fragment_ports(struct __sk_buff *skb, struct packet *pkt)
{
	struct fragment_key key = {};

	if (!pkt)
		return VERDICT_PASS;
	key.src = pkt->tuple.src;
	key.dst = pkt->tuple.dst;
	key.id = pkt->fragment_id;
	key.protocol = pkt->ip4 ? pkt->l4_proto : 0;
	key.hook = pkt->tuple.hook;
	return pkt->fragment ? later_ports(skb, pkt, &key) :
			       first_ports(skb, pkt, &key);
}

/*
 * Fills in ports and TCP flags. A packet passes that has none, or is cut short
 * in its transport header, so that nothing begins with it.
 */
static __always_inline int find_ports(struct __sk_buff *skb, struct packet *pkt)
{
	__u32 end = pkt->l4_off + l4_header_len(pkt->l4_proto);

	if (pkt->end > skb->len)
		return VERDICT_PASS;
	if (pkt->fragment)
		return fragment_ports(skb, pkt);
	if (!has_ports(pkt->l4_proto) || pkt->end < end ||
	    !parse_ports(skb, pkt))
		return VERDICT_PASS;
	if (pkt->l4_proto == IPPROTO_TCP &&
	    bpf_skb_load_bytes(skb, pkt->l4_off + TCP_FLAGS_OFF,
			       &pkt->tcp_flags, sizeof(pkt->tcp_flags)))
		return VERDICT_PASS;
	return pkt->more_fragments ? fragment_ports(skb, pkt) :
				     VERDICT_CONTINUE;
}

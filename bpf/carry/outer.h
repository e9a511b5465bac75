/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What an outer header of a packet that is carried holds: IP in IP (RFC 2003, RFC 2473,
 * RFC 4213), or UDP with the inner packet right behind it (GUE, variant 1), inner and outer
 * family in any mix. Nothing here has a frame: each hook puts it before its own.
 *
 * What the nodes tell each other stands where it has no other meaning: in the ID of an outer
 * IPv4 header, which is never fragmented (RFC 6864), or in the flow label. Who cuts a large
 * packet into segments, the kernel or a card, adds the number of each to the ID, so that it
 * says so in its upper bits: below them is room for 1,024 segments.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include "../abi/config.h"
#include "../abi/flow_types.h"
#include "../abi/maps.h"
#include "../lib/addr.h"
#include "../lib/csum.h"
#include "../lib/kernel.h"

#define OUTER_TTL 64
#define OUTER_TRIED \
	15 /* bits of the ID or the flow label: homes asked before */
#define OUTER_ROUND_SHIFT 4 /* two bits above these: enum ring_round */
#define OUTER_ROUND 3
#define OUTER_ID_TRIED_SHIFT 12 /* the same in the ID */
#define OUTER_ID_ROUND_SHIFT 10
#define DONT_FRAGMENT 0x4000
#define FLOW_PORT_FACTOR 0x9e3779b97f4a7c15ULL /* 2^64 by the golden ratio */
#define FIRST_FLOW_PORT \
	0xc000 /* of the ports that nobody is given (RFC 6335) */

/* What an outer header says. */
struct outer {
	const struct peer *peer;
	__u32 len; /* of the inner packet, in bytes */
	bool inner_ip4;
	__u8 tos; /* DSCP and ECN of the inner packet (RFC 6040, 4.1) */
	__u8 tried;
	__u8 round;
	__be16 flow_port; /* of UDP: see flow_port() */
};

/* Outer headers on the wire: outer_len() says whether that of UDP is part of them. */
struct outer4 {
	struct iphdr ip;
	struct udphdr udp;
};

struct outer6 {
	struct {
		__be32 tos_label;
		__be16 len;
		__u8 next;
		__u8 hops;
		struct ip_addr src;
		struct ip_addr dst;
	} ip;
	struct udphdr udp;
};

union outer_header {
	struct outer4 ip4;
	struct outer6 ip6;
};

/* The bytes of an outer header between addresses of a family. */
static __always_inline __u32 outer_len(bool ip4)
{
	__u32 udp = carry_udp ? sizeof(struct udphdr) : 0;

	return (ip4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) + udp;
}

/* How many bytes of a packet a peer gets at once, of 0 any number. */
static __always_inline __u32 most_of(const struct peer *p)
{
	__u32 outer = outer_len(is_ip4(&p->theirs));

	return p->mtu > outer ? p->mtu - outer : 0;
}

/*
 * The source port of UDP: by the ends of the inner packet, so that networks and cards, which
 * see no more of it, spread flows over paths and queues, and keep the order of each.
 */
static __always_inline __be16 flow_port(const struct tuple *t)
{
	__u64 ends = (__u64)(t->src.word[0] ^ t->src.word[2]) << 32 |
		     (t->src.word[1] ^ t->src.word[3]);

	ends ^= (__u64)t->dst.word[3] << 32 | ports_word(t);
	ends = (ends ^ hash_key[0]) * FLOW_PORT_FACTOR;
	return bpf_htons(FIRST_FLOW_PORT | ends >> 50);
}

static __always_inline __u8 outer_protocol(const struct outer *o)
{
	if (carry_udp)
		return IPPROTO_UDP;
	return o->inner_ip4 ? IPPROTO_IPIP : IPPROTO_IPV6;
}

/*
 * The checksum is none, also over IPv6 (RFC 6935, RFC 6936): the inner packet has its own, and
 * an address that has changed on the way is no peer's, or no Service's.
 */
static __always_inline struct udphdr outer_udp(const struct outer *o)
{
	return (struct udphdr){
		.source = o->flow_port,
		.dest = bpf_htons(carry_port),
		.len = bpf_htons(sizeof(struct udphdr) + o->len),
	};
}

static __always_inline void make_outer4(const struct outer *o, struct outer4 *h)
{
	const __u32 *word = (const void *)&h->ip;
	__u32 sum = 0;

	*h = (struct outer4){
		.ip = {
			.version = 4,
			.ihl = 5,
			.tos = o->tos,
			.tot_len = bpf_htons(outer_len(true) + o->len),
			.id = bpf_htons((o->tried & OUTER_TRIED)
						<< OUTER_ID_TRIED_SHIFT |
					(o->round & OUTER_ROUND)
						<< OUTER_ID_ROUND_SHIFT),
			.frag_off = bpf_htons(DONT_FRAGMENT),
			.ttl = OUTER_TTL,
			.protocol = outer_protocol(o),
			.saddr = o->peer->ours.word[3],
			.daddr = o->peer->theirs.word[3],
		},
		.udp = outer_udp(o),
	};

	for (int i = 0; i < (int)(sizeof(h->ip) / sizeof(*word)); i++)
		sum = sum_add(sum, word[i]);
	h->ip.check = ~sum_fold(sum);
}

static __always_inline void make_outer6(const struct outer *o, struct outer6 *h)
{
	*h = (struct outer6){
		.ip = {
			.tos_label = bpf_htonl(6 << 28 | o->tos << 20 |
					       (o->round & OUTER_ROUND)
						       << OUTER_ROUND_SHIFT |
					       (o->tried & OUTER_TRIED)),
			.len = bpf_htons(outer_len(false) -
					 sizeof(struct ipv6hdr) + o->len),
			.next = outer_protocol(o),
			.hops = OUTER_TTL,
			.src = o->peer->ours,
			.dst = o->peer->theirs,
		},
		.udp = outer_udp(o),
	};
}

/* Which next hop is looked for, on the way to a peer from a device. */
static __always_inline void aim_at(const struct peer *p, __u32 ifindex,
				   struct bpf_fib_lookup *hop)
{
	hop->ifindex = ifindex;
	if (is_ip4(&p->theirs)) {
		hop->family = AF_INET;
		hop->ipv4_src = p->ours.word[3];
		hop->ipv4_dst = p->theirs.word[3];
	} else {
		hop->family = AF_INET6;
		__builtin_memcpy(hop->ipv6_src, &p->ours, 16);
		__builtin_memcpy(hop->ipv6_dst, &p->theirs, 16);
	}
}

/* What was carried to each peer, and from it. */
static __always_inline struct peer_counts *counts_of(__u32 peer)
{
	return bpf_map_lookup_elem(&peer_counts, &peer);
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What an outer header of a packet that is carried holds, inner and outer family in any mix. Nodes
 * carry to each other over UDP. Between UDP and the inner packet stands a proof of 64 bits (proof.h).
 * A backend outside gets IP in IP (RFC 2003, RFC 2473, RFC 4213), or UDP without a proof: the inner
 * packet follows at once (GUE, variant 1). Nothing here knows a hook: each makes room before its own
 * packet.
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
#include "proof.h"

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
	__u64 proof;	  /* of UDP: see prove() */
};

/* IP headers by words, each of which is one store. */
struct outer4 {
	__be32 tos_len;
	__be32 id_fragment;
	__be32 hops_next_check;
	__be32 src;
	__be32 dst;
};

struct outer6 {
	__be32 tos_label;
	__be32 len_next_hops;
	struct ip_addr src;
	struct ip_addr dst;
};

/* The header of UDP before what a node carries. */
struct proof_udp {
	struct udphdr udp;
	__u64 proof;
};

/* Is there UDP in an outer header to a peer? */
static __always_inline bool is_over_udp(const struct peer *p)
{
	return outside_udp || !(p->flags & PEER_OUTSIDE);
}

/* The bytes of an outer header to a peer. */
static __always_inline __u32 outer_len(const struct peer *p)
{
	__u32 len = is_ip4(&p->theirs) ? sizeof(struct iphdr) :
					 sizeof(struct ipv6hdr);

	if (!(p->flags & PEER_OUTSIDE))
		return len + sizeof(struct proof_udp);
	return outside_udp ? len + sizeof(struct udphdr) : len;
}

/* How many bytes of a packet a peer gets at once, of 0 any number. */
static __always_inline __u32 most_of(const struct peer *p)
{
	__u32 outer = outer_len(p);

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
	if (is_over_udp(o->peer))
		return IPPROTO_UDP;
	return o->inner_ip4 ? IPPROTO_IPIP : IPPROTO_IPV6;
}

static __always_inline void write_outer4(struct outer4 *h,
					 const struct outer *o)
{
	__u32 len = outer_len(o->peer) + o->len,
	      id = (o->tried & OUTER_TRIED) << OUTER_ID_TRIED_SHIFT |
		   (o->round & OUTER_ROUND) << OUTER_ID_ROUND_SHIFT,
	      hops_next = OUTER_TTL << 24 | outer_protocol(o) << 16, sum;

	h->tos_len = bpf_htonl(0x45 << 24 | o->tos << 16 | (len & 0xffff));
	h->id_fragment = bpf_htonl(id << 16 | DONT_FRAGMENT);
	h->src = o->peer->ours.word[3];
	h->dst = o->peer->theirs.word[3];
	sum = sum_add(sum_add(h->tos_len, h->id_fragment),
		      bpf_htonl(hops_next));
	sum = sum_fold(sum_add(sum_add(sum, h->src), h->dst));
	h->hops_next_check = bpf_htonl(hops_next | bpf_ntohs((__u16)~sum));
}

static __always_inline void write_outer6(struct outer6 *h,
					 const struct outer *o)
{
	__u32 len = outer_len(o->peer) - sizeof(*h) + o->len;

	h->tos_label = bpf_htonl(6 << 28 | o->tos << 20 |
				 (o->round & OUTER_ROUND) << OUTER_ROUND_SHIFT |
				 (o->tried & OUTER_TRIED));
	h->len_next_hops =
		bpf_htonl(len << 16 | outer_protocol(o) << 8 | OUTER_TTL);
	h->src = o->peer->ours;
	h->dst = o->peer->theirs;
}

/*
 * Writes the header of UDP, if there is to be one; false if there is no room. The checksum is
 * none, also over IPv6 (RFC 6935, RFC 6936): the inner packet has its own, and an address that
 * has changed on the way is no peer's, or no Service's.
 */
static __always_inline bool write_outer_udp(struct proof_udp *h,
					    const void *data_end,
					    const struct outer *o)
{
	bool outside = o->peer->flags & PEER_OUTSIDE;
	__u32 len = outside ? sizeof(h->udp) : sizeof(*h);

	if (!is_over_udp(o->peer))
		return true;
	if ((void *)(&h->udp + 1) > data_end)
		return false;
	h->udp.source = o->flow_port;
	h->udp.dest = bpf_htons(carry_port);
	h->udp.len = bpf_htons(len + o->len);
	h->udp.check = 0;
	if (outside)
		return true;
	if ((void *)(h + 1) > data_end)
		return false;
	h->proof = o->proof;
	return true;
}

/*
 * Sets the proof of an outer header, if it has one. The packet may be cut into pieces later. False
 * if its begin is out of reach.
 */
static __always_inline bool prove(struct outer *o, const void *inner,
				  const void *data_end, bool piece)
{
	struct proven v = {
		.inner = inner,
		.data_end = data_end,
		.len = o->len,
		.ip4 = o->inner_ip4,
		.piece = piece,
		.ring = (o->round & OUTER_ROUND) << PROOF_ROUND_SHIFT |
			(o->tried & OUTER_TRIED),
	};

	return o->peer->flags & PEER_OUTSIDE ||
	       proof_of(carry_keys[0], &o->peer->ours, &o->peer->theirs, &v,
			&o->proof);
}

/*
 * Writes an outer header behind the Ethernet header of a frame, and its kind into that; false
 * if there is no room.
 */
static __always_inline bool write_outer(void *frame, const void *data_end,
					const struct outer *o)
{
	struct ethhdr *eth = frame;
	struct outer4 *h4 = (void *)(eth + 1);
	struct outer6 *h6 = (void *)(eth + 1);

	if (is_ip4(&o->peer->theirs)) {
		if ((void *)(h4 + 1) > data_end)
			return false;
		eth->h_proto = bpf_htons(ETH_P_IP);
		write_outer4(h4, o);
		return write_outer_udp((void *)(h4 + 1), data_end, o);
	}
	if ((void *)(h6 + 1) > data_end)
		return false;
	eth->h_proto = bpf_htons(ETH_P_IPV6);
	write_outer6(h6, o);
	return write_outer_udp((void *)(h6 + 1), data_end, o);
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

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The outer header of a packet that is carried: IP in IP (RFC 2003, RFC 2473, RFC 4213),
 * inner and outer family in any mix. What the nodes tell each other stands where it has
 * no other meaning: in the ID of an outer IPv4 header, which is never fragmented
 * (RFC 6864), or in the flow label. Who cuts a large packet into segments, the kernel or a
 * card, adds the number of each to the ID, so that it says so in its upper bits: below them
 * is room for 1,024 segments.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "../abi/maps.h"
#include "../lib/addr.h"
#include "../lib/csum.h"

#define OUTER_TTL 64
#define OUTER_TRIED \
	15 /* bits of the ID or the flow label: homes asked before */
#define OUTER_ROUND_SHIFT 4 /* two bits above these: enum ring_round */
#define OUTER_ROUND 3
#define OUTER_ID_TRIED_SHIFT 12 /* the same in the ID */
#define OUTER_ID_ROUND_SHIFT 10
#define DONT_FRAGMENT 0x4000

/* Since Linux 6.3; only where the families differ. */
#define DECAP_L3_IPV4 (1ULL << 7)
#define DECAP_L3_IPV6 (1ULL << 8)

/* What an outer header says. */
struct outer {
	const struct peer *peer;
	__u32 len; /* of the inner packet, in bytes */
	bool inner_ip4;
	__u8 tos; /* DSCP and ECN of the inner packet (RFC 6040, 4.1) */
	__u8 tried;
	__u8 round;
};

static __always_inline __u32 outer_len(const struct peer *p)
{
	return is_ip4(&p->theirs) ? sizeof(struct iphdr) :
				    sizeof(struct ipv6hdr);
}

/* An outer header of IPv4. */
static __always_inline struct iphdr outer_ip4(const struct outer *o)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tos = o->tos,
		.tot_len = bpf_htons(sizeof(ip) + o->len),
		.id = bpf_htons(
			(o->tried & OUTER_TRIED) << OUTER_ID_TRIED_SHIFT |
			(o->round & OUTER_ROUND) << OUTER_ID_ROUND_SHIFT),
		.frag_off = bpf_htons(DONT_FRAGMENT),
		.ttl = OUTER_TTL,
		.protocol = o->inner_ip4 ? IPPROTO_IPIP : IPPROTO_IPV6,
		.saddr = o->peer->ours.word[3],
		.daddr = o->peer->theirs.word[3],
	};
	const __u32 *word = (const void *)&ip;
	__u32 sum = 0;

	for (int i = 0; i < (int)(sizeof(ip) / sizeof(*word)); i++)
		sum = sum_add(sum, word[i]);
	ip.check = ~sum_fold(sum);
	return ip;
}

struct outer_ip6 {
	__be32 tos_label;
	__be16 len;
	__u8 next;
	__u8 hops;
	struct ip_addr src;
	struct ip_addr dst;
};

/* The same of IPv6. */
static __always_inline struct outer_ip6 outer_ip6(const struct outer *o)
{
	return (struct outer_ip6){
		.tos_label = bpf_htonl(6 << 28 | o->tos << 20 |
				       (o->round & OUTER_ROUND)
					       << OUTER_ROUND_SHIFT |
				       (o->tried & OUTER_TRIED)),
		.len = bpf_htons(o->len),
		.next = o->inner_ip4 ? IPPROTO_IPIP : IPPROTO_IPV6,
		.hops = OUTER_TTL,
		.src = o->peer->ours,
		.dst = o->peer->theirs,
	};
}

static __always_inline bool write_outer4(struct __sk_buff *skb, __u32 l3_off,
					 const struct outer *o)
{
	struct iphdr ip = outer_ip4(o);

	return !bpf_skb_store_bytes(skb, l3_off, &ip, sizeof(ip), 0);
}

static __always_inline bool write_outer6(struct __sk_buff *skb, __u32 l3_off,
					 const struct outer *o)
{
	struct outer_ip6 ip = outer_ip6(o);

	return !bpf_skb_store_bytes(skb, l3_off, &ip, sizeof(ip), 0);
}

/* Writes the kind of the packet behind an Ethernet header. */
static __always_inline bool write_kind(struct __sk_buff *skb, __u32 l3_off,
				       bool ip4)
{
	__be16 kind = ip4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);

	return !l3_off || !bpf_skb_store_bytes(skb, l3_off - sizeof(kind),
					       &kind, sizeof(kind), 0);
}

/* Writes an outer header at l3_off, where there is room for it. */
static __always_inline bool write_outer(struct __sk_buff *skb, __u32 l3_off,
					const struct outer *o)
{
	bool ip4 = is_ip4(&o->peer->theirs);

	return write_kind(skb, l3_off, ip4) &&
	       (ip4 ? write_outer4(skb, l3_off, o) :
		      write_outer6(skb, l3_off, o));
}

/*
 * Puts an outer header before the packet at l3_off. Segments that a device is to cut keep
 * their size; where they are too long they may shrink instead.
 */
static __always_inline bool put_outer(struct __sk_buff *skb, __u32 l3_off,
				      const struct outer *o, bool shrink)
{
	bool ip4 = is_ip4(&o->peer->theirs);
	__u64 flags = shrink ? 0 : BPF_F_ADJ_ROOM_FIXED_GSO;
	__u64 encap = ip4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 :
			    BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
	__u32 len = outer_len(o->peer);

	/* What came here in an outer header may be one to the kernel still. */
	if (bpf_skb_adjust_room(skb, len, BPF_ADJ_ROOM_MAC, flags | encap) &&
	    bpf_skb_adjust_room(skb, len, BPF_ADJ_ROOM_MAC, flags))
		return false;
	return write_outer(skb, l3_off, o);
}

/* Removes an outer header of so many bytes from the packet at l3_off. */
static __always_inline bool remove_outer(struct __sk_buff *skb, __u32 l3_off,
					 __u32 len, bool outer_ip4,
					 bool inner_ip4)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;

	if (outer_ip4 != inner_ip4)
		flags |= inner_ip4 ? DECAP_L3_IPV4 : DECAP_L3_IPV6;
	return !bpf_skb_adjust_room(skb, -(__s32)len, BPF_ADJ_ROOM_MAC,
				    flags) &&
	       write_kind(skb, l3_off, inner_ip4);
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is too long with its outer header. The home tells clients how long segments of TCP
 * may be (tc/mss.h), so what is left is datagrams, and clients that were told nothing. What
 * may be fragmented is carried in two pieces, as a router would send it: the home, or the pod,
 * puts them together. Of all else the client is told how long it may be, by the address that
 * it has sent to.
 *
 * Outer headers are never fragmented: programs see packets before the stack joins them.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#include "../abi/maps.h"
#include "../carry/outer.h"
#include "../carry/ring.h"
#include "../lib/addr.h"
#include "../lib/csum.h"
#include "../lib/verdict.h"
#include "carried.h"
#include "carry.h"
#include "fragment.h"
#include "icmp.h"
#include "outer.h"
#include "packet.h"
#include "parse.h"
#include "redirect.h"
#include "reset.h"

/* Bytes of a packet that an error quotes: both headers of either family, whatever options. */
#define QUOTED_BYTES 68

/* What every path of IPv6 takes (RFC 8200, 5): nobody is told less. */
#define LEAST_MTU6 1280

#define ICMP6_TOO_BIG 2

/* Where in an IPv4 header its length and its fragmentation stand. */
struct ip4_piece {
	__be16 len;
	__be16 id;
	__be16 fragment;
};

/* Makes an IPv4 header at an offset that of a piece of so many bytes. */
static __always_inline bool write_piece(struct __sk_buff *skb, __u32 l3_off,
					__u32 len, __u16 fragment)
{
	__u32 off = l3_off + offsetof(struct iphdr, tot_len), sum = 0;
	struct ip4_piece p;

	if (bpf_skb_load_bytes(skb, off, &p, sizeof(p)))
		return false;
	sum = sum_replace(sum, p.len, bpf_htons(len));
	sum = sum_replace(sum, p.fragment, bpf_htons(fragment));
	p.len = bpf_htons(len);
	p.fragment = bpf_htons(fragment);
	return !bpf_skb_store_bytes(skb, off, &p, sizeof(p), 0) &&
	       !bpf_l3_csum_replace(skb, l3_off + offsetof(struct iphdr, check),
				    0, sum, 0);
}

/* What an IPv4 header says of fragments. */
static __always_inline __u16 read_fragment(struct __sk_buff *skb,
					   const struct packet *pkt)
{
	__be16 fragment = bpf_htons(IP4_DONT_FRAGMENT);

	bpf_skb_load_bytes(skb, pkt->l3_off + offsetof(struct iphdr, frag_off),
			   &fragment, sizeof(fragment));
	return bpf_ntohs(fragment);
}

/*
 * Carries a packet of IPv4 in two pieces, and returns what the program is to return. The end
 * of it is kept while what is left goes as the first one; then it follows by the same next
 * hop. Where the kernel has yet to find that out, the second one is lost. The kernel is not told
 * of the outer header: it would change the length no more.
 */
GLOBAL_FUNC int cut(struct __sk_buff *skb, struct packet *pkt)
{
	const struct peer_way *w;
	struct queued_frame *rest;
	struct outer o = {};
	__u32 zero = 0, header, first, at;
	__u16 fragment;
	struct peer *p;
	int verdict;
	__u64 len;

	if (!pkt || pkt->l3_off != ETH_HLEN)
		return TC_ACT_SHOT;
	p = find_peer(pkt->home);
	rest = bpf_map_lookup_elem(&frame_scratch, &zero);
	header = pkt->l4_off - ETH_HLEN;
	if (!p || !rest || most_of(p) < header + 8)
		return refuse(DROP_TOO_LONG, 0), TC_ACT_SHOT;
	first = (most_of(p) - header) & ~7;
	at = pkt->l4_off + first;
	len = pkt->end - at;
	if (len > first)
		return refuse(DROP_TOO_LONG, 0), TC_ACT_SHOT;
	keep_apart(len);
	if ((__s64)len <= 0)
		return refuse(DROP_TOO_LONG, 0), TC_ACT_SHOT;
	keep_apart(len);
	if (len > QUEUED_LEN)
		return refuse(DROP_TOO_LONG, 0), TC_ACT_SHOT;
	fragment = read_fragment(skb, pkt);
	if (bpf_skb_load_bytes(skb, at, rest->bytes, len) ||
	    bpf_skb_change_tail(skb, at, 0) || !prepare(skb, pkt, p, &o) ||
	    !write_piece(skb, ETH_HLEN, header + first,
			 fragment | IP4_MORE_FRAGMENTS))
		return refuse(DROP_CARRIED, 0), TC_ACT_SHOT;
	o.len = header + first;
	if (bpf_skb_adjust_room(skb, outer_len(is_ip4(&p->theirs)),
				BPF_ADJ_ROOM_MAC, 0) ||
	    !write_outer_here(skb, &o))
		return refuse(DROP_CARRIED, 0), TC_ACT_SHOT;
	note_carried(pkt, skb->len - ETH_HLEN);
	w = go_by_way(skb, pkt->home, p, &verdict);
	if (!w)
		return verdict;
	bpf_clone_redirect(skb, w->ifindex, 0);
	at = ETH_HLEN + outer_len(is_ip4(&p->theirs));
	o.len = header + len;
	if (bpf_skb_change_tail(skb, at + header + len, 0) ||
	    bpf_skb_store_bytes(skb, at + header, rest->bytes, len, 0) ||
	    !write_piece(skb, at, header + len, fragment + first / 8) ||
	    !write_outer_here(skb, &o))
		return TC_ACT_SHOT;
	note_carried(pkt, skb->len - ETH_HLEN);
	return bpf_redirect(w->ifindex, 0);
}

/* The header of an ICMP error that says how long packets may be. */
struct too_long {
	__u8 type;
	__u8 code;
	__be16 csum;
	__be32 mtu;
};

/*
 * The packet becomes an error to its sender, who is told how many bytes there is room for;
 * returns what the program is to return.
 */
GLOBAL_FUNC int tell_too_long(struct __sk_buff *skb, struct packet *pkt,
			      __u32 room)
{
	struct too_long icmp = { .type = ICMP_DEST_UNREACH,
				 .code = ICMP_FRAG_NEEDED };
	__u32 header = sizeof(struct iphdr), sum = 0;
	__u8 protocol = IPPROTO_ICMP;
	__be32 quoted[QUOTED_BYTES / 4];

	if (!pkt || pkt->l3_off != ETH_HLEN)
		return TC_ACT_SHOT;
	if (!may_answer()) {
		count(reset_limited);
		return TC_ACT_SHOT;
	}
	if (!pkt->ip4) {
		header = sizeof(struct ipv6hdr);
		protocol = IPPROTO_ICMPV6;
		icmp.type = ICMP6_TOO_BIG;
		icmp.code = 0;
		room = room < LEAST_MTU6 ? LEAST_MTU6 : room;
		sum = pseudo_sum(&pkt->tuple, IPPROTO_ICMPV6,
				 sizeof(icmp) + QUOTED_BYTES);
	}
	icmp.mtu = bpf_htonl(room);
	if (bpf_skb_load_bytes(skb, ETH_HLEN, quoted, sizeof(quoted)) ||
	    bpf_skb_change_tail(skb, ETH_HLEN + QUOTED_BYTES, 0) ||
	    bpf_skb_adjust_room(skb, header + sizeof(icmp), BPF_ADJ_ROOM_MAC,
				0))
		return TC_ACT_SHOT;
	sum = bpf_csum_diff(NULL, 0, quoted, sizeof(quoted), sum);
	icmp.csum = ~sum_fold(
		bpf_csum_diff(NULL, 0, (__be32 *)&icmp, sizeof(icmp), sum));
	if (!write_ip(skb, pkt, protocol, sizeof(icmp) + QUOTED_BYTES) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN + header, &icmp, sizeof(icmp),
				0) ||
	    !swap_macs(skb))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* Is the sender of a packet told that it is too long? Not of errors, and only where it came in. */
static __always_inline bool is_told(const struct packet *pkt)
{
	return !pkt->carried && !pkt->fragment && has_ports(pkt->l4_proto);
}

/* A packet that is too long is carried in pieces, or its sender is told so. */
static __always_inline int
carry_too_long(struct __sk_buff *skb, struct packet *pkt, const struct peer *p)
{
	if (pkt->ip4 && !skb->gso_size &&
	    !(read_fragment(skb, pkt) & IP4_DONT_FRAGMENT))
		return cut(skb, pkt);
	refuse(DROP_TOO_LONG, 0);
	return is_told(pkt) ? tell_too_long(skb, pkt, most_of(p)) : TC_ACT_SHOT;
}

/*
 * Carries a packet to its home, whole or in pieces, and returns what the program is to
 * return.
 */
GLOBAL_FUNC int carry(struct __sk_buff *skb, struct packet *pkt)
{
	bool shrink = false;
	struct peer *p;

	if (!pkt || pkt->l3_off != ETH_HLEN)
		return refuse(DROP_CARRIED, 0), TC_ACT_SHOT;
	p = find_peer(pkt->home);
	if (!p)
		return refuse(DROP_CARRIED, 0), TC_ACT_SHOT;
	if (is_too_long(skb, pkt, p)) {
		shrink = may_shrink(skb, pkt, p);
		if (!shrink)
			return carry_too_long(skb, pkt, p);
	}
	return carry_whole(skb, pkt, p, shrink);
}

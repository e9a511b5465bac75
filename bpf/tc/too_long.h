/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is too long with its outer header. The home tells clients how long segments of TCP
 * may be (tc/mss.h), so what is left is datagrams, and clients that were told nothing. What
 * may be fragmented is carried in pieces (tc/cut.h). Of all else the client is told how long
 * it may be, by the address that it has sent to.
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
#include "cut.h"
#include "icmp.h"
#include "outer.h"
#include "packet.h"
#include "parse.h"
#include "redirect.h"
#include "refuse.h"
#include "reset.h"

/* Bytes of a packet that an error quotes: both headers of either family, whatever options. */
#define QUOTED_BYTES 68

/* What is left of a packet at first: what is renewed, and the longest IP header. */
#define KEPT_BYTES (CUT_BEGIN + 60)

/* What every path of IPv6 takes (RFC 8200, 5): nobody is told less. */
#define LEAST_MTU6 1280

#define ICMP6_TOO_BIG 2

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
	/* Once it is shorter no device is to cut it, and there is room to shrink. */
	if (bpf_skb_load_bytes(skb, ETH_HLEN, quoted, sizeof(quoted)) ||
	    bpf_skb_change_tail(skb, ETH_HLEN + KEPT_BYTES, 0) ||
	    !renew_begin(skb, header + sizeof(icmp)) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN + header + sizeof(icmp), quoted,
				sizeof(quoted), 0) ||
	    bpf_skb_change_tail(
		    skb, ETH_HLEN + header + sizeof(icmp) + QUOTED_BYTES, 0))
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
	refuse_packet(pkt, DROP_TOO_LONG, 0);
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

	if (!pkt)
		return TC_ACT_SHOT;
	if (pkt->l3_off != ETH_HLEN)
		return refuse_packet(pkt, DROP_CARRIED, 0), TC_ACT_SHOT;
	p = find_peer(pkt->home);
	if (!p)
		return refuse_packet(pkt, DROP_CARRIED, 0), TC_ACT_SHOT;
	if (is_too_long(skb, pkt, p)) {
		shrink = may_shrink(skb, pkt, p);
		if (!shrink)
			return carry_too_long(skb, pkt, p);
	}
	return carry_whole(skb, pkt, p, shrink);
}

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Answering a packet with a TCP reset, without a flow and without a socket. The
 * packet itself becomes the answer, and goes back to where it came from.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>

#include "../abi/config.h"
#include "../abi/maps.h"
#include "../lib/csum.h"
#include "../lib/time.h"
#include "../lib/verdict.h"
#include "packet.h"
#include "parse.h"

#define RESET_TTL 64

/*
 * A CPU sends as many answers of its own a second as the kernel sends ICMP errors by default. So a
 * flood of a port without endpoints gets few of them, and so does the address that the
 * flood forges.
 */
#define RESETS_PER_SECOND 1000

/* The sum of the pseudo-header of so many bytes of a protocol. */
static __always_inline __u32 pseudo_sum(const struct tuple *t, __u8 protocol,
					__u32 len)
{
	__u32 sum = bpf_htonl(protocol + len);

	/* What makes an IPv4 address one of IPv6 adds nothing to a sum. */
	for (int i = 0; i < 4; i++)
		sum = sum_add(sum_add(sum, t->src.word[i]), t->dst.word[i]);
	return sum;
}

/* Is the IP header one without options, or others behind it? */
static __always_inline bool is_plain(const struct packet *pkt)
{
	return pkt->l4_off - pkt->l3_off ==
	       (pkt->ip4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
}

/* Writes the IP header of an answer to a packet, before so many bytes of a protocol. */
static __always_inline bool write_ip(struct __sk_buff *skb,
				     const struct packet *pkt, __u8 protocol,
				     __u32 len)
{
	const struct tuple *t = &pkt->tuple;

	if (!pkt->ip4) {
		struct ipv6hdr ip6 = {
			.version = 6,
			.payload_len = bpf_htons(len),
			.nexthdr = protocol,
			.hop_limit = RESET_TTL,
		};

		__builtin_memcpy(&ip6.saddr, &t->dst, sizeof(ip6.saddr));
		__builtin_memcpy(&ip6.daddr, &t->src, sizeof(ip6.daddr));
		return !bpf_skb_store_bytes(skb, pkt->l3_off, &ip6, sizeof(ip6),
					    0);
	}
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tot_len = bpf_htons(sizeof(ip) + len),
		.frag_off = bpf_htons(IP4_DONT_FRAGMENT),
		.ttl = RESET_TTL,
		.protocol = protocol,
		.saddr = t->dst.word[3],
		.daddr = t->src.word[3],
	};

	return !bpf_skb_store_bytes(skb, pkt->l3_off, &ip, sizeof(ip), 0) &&
	       !bpf_l3_csum_replace(
		       skb, pkt->l3_off + offsetof(struct iphdr, check), 0,
		       bpf_csum_diff(NULL, 0, (__be32 *)&ip, sizeof(ip), 0), 0);
}

/*
 * Writes a TCP header. Its checksum is that of nothing at first: what is added
 * then comes out right whether or not a device is still to finish it.
 */
static __always_inline bool write_tcp(struct __sk_buff *skb,
				      const struct packet *pkt,
				      const struct tcphdr *tcp)
{
	__u32 off = pkt->l4_off + TCP_CSUM_OFF;
	__u64 flags = BPF_F_PSEUDO_HDR;

	if (!pkt->ip4)
		flags |= ip6_csum_flag;
	return !bpf_skb_store_bytes(skb, pkt->l4_off, tcp, sizeof(*tcp), 0) &&
	       !bpf_l4_csum_replace(skb, off, 0,
				    bpf_csum_diff(NULL, 0, (__be32 *)tcp,
						  sizeof(*tcp), 0),
				    0) &&
	       !bpf_l4_csum_replace(skb, off, 0,
				    pseudo_sum(&pkt->tuple, IPPROTO_TCP,
					       sizeof(*tcp)),
				    flags);
}

/* Sends the frame back to its sender. */
static __always_inline bool swap_macs(struct __sk_buff *skb)
{
	__u8 was[2 * ETH_ALEN], now[2 * ETH_ALEN];

	if (bpf_skb_load_bytes(skb, 0, was, sizeof(was)))
		return false;
	__builtin_memcpy(now, was + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(now + ETH_ALEN, was, ETH_ALEN);
	return !bpf_skb_store_bytes(skb, 0, now, sizeof(now), 0);
}

/*
 * The reset that is due to a TCP segment of so many bytes (RFC 9293, 3.10.7.1);
 * false if that is one itself, or makes no sense.
 */
static __always_inline bool make_reset(const struct tcphdr *got, __u32 len,
				       struct tcphdr *reset)
{
	__u32 header = got->doff * 4;

	if (got->rst || len < header)
		return false;
	reset->source = got->dest;
	reset->dest = got->source;
	reset->doff = sizeof(*reset) / 4;
	reset->rst = 1;
	if (got->ack) {
		reset->seq = got->ack_seq;
		return true;
	}
	reset->ack = 1;
	reset->ack_seq = bpf_htonl(bpf_ntohl(got->seq) + len - header +
				   got->syn + got->fin);
	return true;
}

/* What this CPU has answered within this second. */
static __always_inline struct reset_budget *this_budget(void)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct reset_budget *b;
	__u32 zero = 0;

	b = bpf_map_lookup_elem(&reset_budgets, &zero);
	if (b && elapsed(now, b->since_ns) >= NSEC_PER_SEC) {
		b->since_ns = now;
		b->spent = 0;
	}
	return b;
}

/* May this CPU answer a packet itself? */
static __always_inline bool may_answer(void)
{
	struct reset_budget *b = this_budget();

	return b && b->spent++ < RESETS_PER_SECOND;
}

/*
 * Answers a packet with a reset, and returns what the program is to return. What
 * has options, extension headers or other fragments is dropped.
 */
GLOBAL_FUNC int reset(struct __sk_buff *skb, struct packet *pkt)
{
	struct tcphdr got, reset = {};

	if (!pkt || pkt->l4_proto != IPPROTO_TCP || pkt->fragment ||
	    pkt->more_fragments || !is_plain(pkt) ||
	    bpf_skb_load_bytes(skb, pkt->l4_off, &got, sizeof(got)) ||
	    !make_reset(&got, pkt->end - pkt->l4_off, &reset))
		return TC_ACT_SHOT;
	if (!may_answer()) {
		count(reset_limited);
		return TC_ACT_SHOT;
	}
	if (bpf_skb_change_tail(skb, pkt->l4_off + sizeof(reset), 0) ||
	    !write_ip(skb, pkt, IPPROTO_TCP, sizeof(reset)) ||
	    !write_tcp(skb, pkt, &reset) || (pkt->l3_off && !swap_macs(skb)))
		return TC_ACT_SHOT;
	count(flow_reset);
	return bpf_redirect(skb->ifindex,
			    pkt->tuple.hook == HOOK_OUT ? BPF_F_INGRESS : 0);
}

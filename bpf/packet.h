/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a packet is, as far as a Service is concerned. This is one of the two
 * places where the families meet: here headers are read, in nat.h written.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#include "addr.h"
#include "verdict.h"

#define IP4_FRAGMENT_OFFSET 0x1fff
#define IP4_MORE_FRAGMENTS 0x2000
#define IP4_DONT_FRAGMENT 0x4000
#define IP6_MAX_HEADERS 6

/* Where the headers of a packet are, in bytes from its start. */
struct packet {
	__u32 l3_off;
	__u32 l4_off;
	__u32 end; /* of the IP packet: frames may be padded */
	bool ip4;
	bool fragment;	    /* has no ports: not the first of its datagram */
	__u16 fragment_off; /* in bytes */
	bool more_fragments;
	bool pod;	/* seen on the device of a pod */
	bool rewritten; /* has another tuple now */
	bool plain;	/* see plain.h */
	__be32 fragment_id;
	__u8 l4_proto;
	__u8 tcp_flags; /* TCP_SYN, …; 0 without a TCP header */
	struct tuple tuple;
};

static __always_inline struct tuple reversed(const struct tuple *t)
{
	return (struct tuple){
		.src = t->dst,
		.dst = t->src,
		.src_port = t->dst_port,
		.dst_port = t->src_port,
		.protocol = t->protocol,
		.hook = t->hook,
	};
}

static __always_inline bool same_tuple(const struct tuple *a,
				       const struct tuple *b)
{
	return same_addr(&a->src, &b->src) && same_addr(&a->dst, &b->dst) &&
	       a->src_port == b->src_port && a->dst_port == b->dst_port &&
	       a->protocol == b->protocol;
}

static __always_inline struct ip_addr from_ip6(const struct in6_addr *a)
{
	return (struct ip_addr){
		.word = { a->in6_u.u6_addr32[0], a->in6_u.u6_addr32[1],
			  a->in6_u.u6_addr32[2], a->in6_u.u6_addr32[3] },
	};
}

/* Reads the IPv4 header at l3_off; false if there is none. */
static __always_inline bool parse_ip4(struct __sk_buff *skb, struct packet *pkt,
				      __u32 l3_off)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, l3_off, &ip, sizeof(ip)) || ip.ihl < 5)
		return false;
	pkt->ip4 = true;
	pkt->l3_off = l3_off;
	pkt->l4_off = l3_off + ip.ihl * 4;
	pkt->end = ip.tot_len ? l3_off + bpf_ntohs(ip.tot_len) : skb->len;
	pkt->l4_proto = ip.protocol;
	pkt->fragment_off = (bpf_ntohs(ip.frag_off) & IP4_FRAGMENT_OFFSET) * 8;
	pkt->fragment = pkt->fragment_off;
	pkt->more_fragments = ip.frag_off & bpf_htons(IP4_MORE_FRAGMENTS);
	pkt->fragment_id = ip.id;
	pkt->tuple.src = from_ip4(ip.saddr);
	pkt->tuple.dst = from_ip4(ip.daddr);
	pkt->tuple.protocol = ip.protocol;
	return true;
}

/* The walk along the headers of an IPv6 packet. */
struct ip6_walk {
	struct __sk_buff *skb;
	struct packet *pkt;
	__u32 off;
	__u8 next; /* kind of the header at off */
	bool ok;
};

static __always_inline bool is_ip6_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING ||
	       next == IPPROTO_DSTOPTS || next == IPPROTO_FRAGMENT ||
	       next == IPPROTO_AH;
}

/* One step of the walk; 1 ends it. A callback, so that it is verified once. */
static long skip_ip6_extension(__u32 i, void *data)
{
	struct ip6_walk *walk = data;
	struct packet *pkt = walk->pkt;
	/* Of every extension header the first bytes are the same. */
	struct {
		__u8 next;
		__u8 len;
		__be16 offset_flags; /* of a fragment header */
		__be32 id;
	} ext;

	if (!is_ip6_extension(walk->next)) {
		walk->ok = true;
		return 1;
	}
	if (bpf_skb_load_bytes(walk->skb, walk->off, &ext, sizeof(ext)))
		return 1;
	if (walk->next == IPPROTO_FRAGMENT) {
		pkt->fragment_off = bpf_ntohs(ext.offset_flags) & 0xfff8;
		pkt->fragment = pkt->fragment_off;
		pkt->more_fragments = ext.offset_flags & bpf_htons(1);
		pkt->fragment_id = ext.id;
		walk->off += 8;
		if (pkt->fragment) { /* no header follows, but data */
			walk->next = ext.next;
			walk->ok = true;
			return 1;
		}
	} else if (walk->next == IPPROTO_AH) {
		walk->off += (ext.len + 2) * 4;
	} else {
		walk->off += (ext.len + 1) * 8;
	}
	walk->next = ext.next;
	return 0;
}

/*
 * Reads the IPv6 header at l3_off and those that follow it, up to the one that
 * has ports; false if there is none or too many, or if an address looks like
 * one of IPv4, which no network carries.
 */
static __always_inline bool parse_ip6(struct __sk_buff *skb, struct packet *pkt,
				      __u32 l3_off)
{
	struct ip6_walk walk = { .skb = skb, .pkt = pkt };
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, l3_off, &ip, sizeof(ip)))
		return false;
	pkt->ip4 = false;
	pkt->l3_off = l3_off;
	pkt->tuple.src = from_ip6(&ip.saddr);
	pkt->tuple.dst = from_ip6(&ip.daddr);
	if (is_ip4(&pkt->tuple.src) || is_ip4(&pkt->tuple.dst))
		return false;
	walk.off = l3_off + sizeof(ip);
	pkt->end = ip.payload_len ? walk.off + bpf_ntohs(ip.payload_len) :
				    skb->len;
	walk.next = ip.nexthdr;
	if (is_ip6_extension(walk.next))
		bpf_loop(IP6_MAX_HEADERS, skip_ip6_extension, &walk, 0);
	else
		walk.ok = true;
	pkt->l4_off = walk.off;
	pkt->l4_proto = walk.next;
	pkt->tuple.protocol = walk.next;
	return walk.ok;
}

/*
 * Reads the headers of a packet of a kind that Ethernet has a number for; false if
 * it is none of ours.
 */
STEP bool parse(struct __sk_buff *skb, struct packet *pkt, __u32 l3_off,
		__u32 kind)
{
	if (!pkt)
		return false;
	if (kind == bpf_htons(ETH_P_IP))
		return parse_ip4(skb, pkt, l3_off);
	if (kind == bpf_htons(ETH_P_IPV6))
		return parse_ip6(skb, pkt, l3_off);
	return false;
}

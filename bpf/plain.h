/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Plain packets, which nearly all are: TCP or UDP in an IP header without options
 * or extensions, no fragments, all headers in memory that a program may read. They
 * are read where they lie, and rewritten by one call of the kernel, since calls
 * are what costs: the functions for all the others take a dozen.
 */
#pragma once

#include "ports.h"

struct plain_ip4 {
	struct iphdr ip;
	struct ports ports;
};

struct plain_ip6 {
	struct ipv6hdr ip;
	struct ports ports;
};

/* Fills in what stands in a transport header in memory; false if it is short. */
static __always_inline bool read_l4(const struct __sk_buff *skb,
				    struct packet *pkt, const void *l4,
				    const void *data_end)
{
	const struct tcphdr *tcp = l4;

	pkt->plain = pkt->end <= skb->len;
	if (pkt->tuple.protocol == IPPROTO_UDP)
		return pkt->plain &&
		       pkt->l4_off + sizeof(struct udphdr) <= pkt->end;
	if (pkt->tuple.protocol != IPPROTO_TCP || (void *)(tcp + 1) > data_end)
		return false;
	pkt->tcp_flags = ((const __u8 *)l4)[TCP_FLAGS_OFF];
	return pkt->plain && pkt->l4_off + sizeof(*tcp) <= pkt->end;
}

static __always_inline bool read_plain4(const struct __sk_buff *skb,
					struct packet *pkt, __u32 l3_off)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	struct plain_ip4 *h = data + l3_off;

	/* The UDP header, which is the shorter one, goes on behind the ports. */
	if ((void *)(h + 1) + sizeof(struct ports) > data_end ||
	    h->ip.ihl != 5 ||
	    h->ip.frag_off &
		    bpf_htons(IP4_FRAGMENT_OFFSET | IP4_MORE_FRAGMENTS))
		return false;
	pkt->ip4 = true;
	pkt->l4_off = l3_off + sizeof(h->ip);
	pkt->end = l3_off + bpf_ntohs(h->ip.tot_len);
	pkt->tuple.src = from_ip4(h->ip.saddr);
	pkt->tuple.dst = from_ip4(h->ip.daddr);
	pkt->tuple.src_port = h->ports.src;
	pkt->tuple.dst_port = h->ports.dst;
	pkt->tuple.protocol = h->ip.protocol;
	return read_l4(skb, pkt, &h->ports, data_end);
}

static __always_inline bool read_plain6(const struct __sk_buff *skb,
					struct packet *pkt, __u32 l3_off)
{
	void *data = (void *)(long)skb->data;
	void *data_end = (void *)(long)skb->data_end;
	struct plain_ip6 *h = data + l3_off;

	if ((void *)(h + 1) + sizeof(struct ports) > data_end)
		return false;
	pkt->ip4 = false;
	pkt->l4_off = l3_off + sizeof(h->ip);
	pkt->end = pkt->l4_off + bpf_ntohs(h->ip.payload_len);
	pkt->tuple.src = from_ip6(&h->ip.saddr);
	pkt->tuple.dst = from_ip6(&h->ip.daddr);
	if (is_ip4(&pkt->tuple.src) || is_ip4(&pkt->tuple.dst))
		return false;
	pkt->tuple.src_port = h->ports.src;
	pkt->tuple.dst_port = h->ports.dst;
	pkt->tuple.protocol = h->ip.nexthdr;
	return read_l4(skb, pkt, &h->ports, data_end);
}

/*
 * Reads a plain packet with its ports. If it is none, this is false, and all that
 * was written is to be written anew.
 */
static __always_inline bool read_plain(const struct __sk_buff *skb,
				       struct packet *pkt, __u32 l3_off)
{
	bool plain = false;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		plain = read_plain4(skb, pkt, l3_off);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		plain = read_plain6(skb, pkt, l3_off);
	pkt->l3_off = l3_off;
	pkt->l4_proto = pkt->tuple.protocol;
	pkt->plain = plain;
	if (!plain)
		pkt->tcp_flags = pkt->tuple.src_port = pkt->tuple.dst_port = 0;
	return plain;
}

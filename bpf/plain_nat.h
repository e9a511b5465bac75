/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rewriting of plain packets by one call of the kernel: from the checksum of the
 * IP header, or the addresses of IPv6, up to the one behind the ports.
 */
#pragma once

#include <bpf/bpf_core_read.h>

#include "csum.h"
#include "plain.h"

#define CHECKSUM_PARTIAL 3

/* What the kernel says of a packet and does not show to programs. */
struct sk_buff {
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

/* Linux 6.2. */
extern void *bpf_cast_to_kern_ctx(void *obj) __ksym __weak;

static __always_inline void note_rewritten(struct packet *pkt,
					   const struct tuple *to)
{
	pkt->tuple = *to;
	pkt->rewritten = true;
}

/* The transport checksum, which a device may still have to finish. */
static __always_inline __u16 plain_csum(struct __sk_buff *skb, __u16 csum,
					const struct packet *pkt,
					const struct tuple *to)
{
	struct sk_buff *k = bpf_cast_to_kern_ctx(skb);

	if (BPF_CORE_READ_BITFIELD(k, ip_summed) != CHECKSUM_PARTIAL)
		return l4_csum(csum, &pkt->tuple, to);
	/* Then it is the sum of the addresses, and what follows from them. */
	return sum_fold(sum_add(csum, addr_diff(&pkt->tuple, to)));
}

/* What of the headers changes, and what is between. */
struct plain4_change {
	__u16 pad;
	__u16 check;
	__be32 src;
	__be32 dst;
	struct ports ports;
	__u16 l4[8]; /* behind the ports: a TCP header up to its checksum */
};

struct plain6_change {
	struct ip_addr src;
	struct ip_addr dst;
	struct ports ports;
	__u16 l4[8];
};

#define UDP_CSUM_WORD 1 /* of l4 */
#define TCP_CSUM_WORD 6

/* Copies what is behind the ports, up to the checksum, and corrects that. */
static __always_inline bool change_l4(struct __sk_buff *skb,
				      const struct packet *pkt,
				      const struct tuple *to, const void *ports,
				      const void *data_end, __u16 *l4)
{
	const __u16 *from = ports + sizeof(struct ports);
	bool udp = pkt->l4_proto == IPPROTO_UDP;

	if (udp) {
		if ((void *)(from + UDP_CSUM_WORD + 1) > data_end)
			return false;
		l4[0] = from[0];
		l4[1] = from[1] ? plain_csum(skb, from[1], pkt, to) : 0;
		return true;
	}
	if ((void *)(from + TCP_CSUM_WORD + 1) > data_end)
		return false;
	__builtin_memcpy(l4, from, TCP_CSUM_WORD * 2);
	l4[TCP_CSUM_WORD] = plain_csum(skb, from[TCP_CSUM_WORD], pkt, to);
	return true;
}

static __always_inline bool rewrite_plain4(struct __sk_buff *skb,
					   const struct packet *pkt,
					   const struct tuple *to, __u32 l3_off,
					   __u32 l4_len)
{
	void *data_end = (void *)(long)skb->data_end;
	struct plain_ip4 *h = (void *)(long)skb->data + l3_off;
	struct plain4_change c = {};

	if ((void *)(h + 1) > data_end ||
	    !change_l4(skb, pkt, to, &h->ports, data_end, c.l4))
		return false;
	c.check = ~sum_fold(
		sum_add((__u16)~h->ip.check, addr_diff(&pkt->tuple, to)));
	c.src = to->src.word[3];
	c.dst = to->dst.word[3];
	c.ports.src = to->src_port;
	c.ports.dst = to->dst_port;
	return !bpf_skb_store_bytes(
		skb, l3_off + offsetof(struct iphdr, check), &c.check,
		offsetof(struct plain4_change, l4) - sizeof(c.pad) + l4_len,
		BPF_F_RECOMPUTE_CSUM);
}

static __always_inline bool rewrite_plain6(struct __sk_buff *skb,
					   const struct packet *pkt,
					   const struct tuple *to, __u32 l3_off,
					   __u32 l4_len)
{
	void *data_end = (void *)(long)skb->data_end;
	struct plain_ip6 *h = (void *)(long)skb->data + l3_off;
	struct plain6_change c = {};

	if ((void *)(h + 1) > data_end ||
	    !change_l4(skb, pkt, to, &h->ports, data_end, c.l4))
		return false;
	c.src = to->src;
	c.dst = to->dst;
	c.ports.src = to->src_port;
	c.ports.dst = to->dst_port;
	return !bpf_skb_store_bytes(skb,
				    l3_off + offsetof(struct ipv6hdr, saddr),
				    &c,
				    offsetof(struct plain6_change, l4) + l4_len,
				    BPF_F_RECOMPUTE_CSUM);
}

/* Gives a plain packet another tuple; false if that is to be done otherwise. */
STEP bool rewrite_plain(struct __sk_buff *skb, struct packet *pkt,
			const struct tuple *to)
{
	__u32 l3_off, l4_len;
	bool done;

	if (!pkt || !to || !bpf_cast_to_kern_ctx)
		return false;
	l3_off = pkt->l3_off ? ETH_HLEN : 0;
	l4_len = pkt->l4_proto == IPPROTO_UDP ? 4 : 14;
	done = pkt->ip4 ? rewrite_plain4(skb, pkt, to, l3_off, l4_len) :
			  rewrite_plain6(skb, pkt, to, l3_off, l4_len);
	if (done)
		note_rewritten(pkt, to);
	return done;
}

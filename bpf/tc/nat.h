/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rewriting: a packet becomes another, of which pkt->to is the tuple. This is one of the two
 * places where the families meet.
 *
 * A plain packet is rewritten by one call of the kernel: from the checksum of the IP
 * header, or the addresses of IPv6, up to the one behind the ports. The checksums of
 * others go through the kernel's helpers, since only they know whether a device is
 * still to finish them.
 */
#pragma once

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "../abi/config.h"
#include "../lib/csum.h"
#include "../lib/kernel.h"
#include "../lib/verdict.h"
#include "packet.h"
#include "parse.h"

static __always_inline void note_rewritten(struct packet *pkt)
{
	pkt->tuple = pkt->to;
	pkt->rewritten = true;
}

/* The transport checksum, which a device may still have to finish. */
static __always_inline __u16 plain_csum(struct __sk_buff *skb, __u16 csum,
					const struct packet *pkt)
{
	struct sk_buff *k = bpf_cast_to_kern_ctx(skb);

	if (BPF_CORE_READ_BITFIELD(k, ip_summed) != CHECKSUM_PARTIAL)
		return l4_csum(csum, &pkt->tuple, &pkt->to);
	/* Then it is the sum of the addresses, and what follows from them. */
	return sum_fold(sum_add(csum, addr_diff(&pkt->tuple, &pkt->to)));
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
				      const void *ports, const void *data_end,
				      __u16 *l4)
{
	const __u16 *from = ports + sizeof(struct ports);
	bool udp = pkt->l4_proto == IPPROTO_UDP;

	if (udp) {
		if ((void *)(from + UDP_CSUM_WORD + 1) > data_end)
			return false;
		l4[0] = from[0];
		l4[1] = from[1] ? plain_csum(skb, from[1], pkt) : 0;
		return true;
	}
	if ((void *)(from + TCP_CSUM_WORD + 1) > data_end)
		return false;
	__builtin_memcpy(l4, from, TCP_CSUM_WORD * 2);
	l4[TCP_CSUM_WORD] = plain_csum(skb, from[TCP_CSUM_WORD], pkt);
	return true;
}

static __always_inline bool rewrite_plain4(struct __sk_buff *skb,
					   const struct packet *pkt,
					   __u32 l3_off, __u32 l4_len)
{
	const struct tuple *to = &pkt->to;
	void *data_end = (void *)(long)skb->data_end;
	struct plain_ip4 *h = (void *)(long)skb->data + l3_off;
	struct plain4_change c = {};

	if ((void *)(h + 1) > data_end ||
	    !change_l4(skb, pkt, &h->ports, data_end, c.l4))
		return false;
	c.check = ~sum_fold(
		sum_add((__u16)~h->ip.check, addr_diff(&pkt->tuple, &pkt->to)));
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
					   __u32 l3_off, __u32 l4_len)
{
	const struct tuple *to = &pkt->to;
	void *data_end = (void *)(long)skb->data_end;
	struct plain_ip6 *h = (void *)(long)skb->data + l3_off;
	struct plain6_change c = {};

	if ((void *)(h + 1) > data_end ||
	    !change_l4(skb, pkt, &h->ports, data_end, c.l4))
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

/* Makes a plain packet what it becomes; false if that is to be done otherwise. */
STEP bool rewrite_plain(struct __sk_buff *skb, struct packet *pkt)
{
	__u32 l3_off, l4_len;
	bool done;

	if (!pkt || !bpf_cast_to_kern_ctx)
		return false;
	l3_off = pkt->l3_off ? ETH_HLEN : 0;
	l4_len = pkt->l4_proto == IPPROTO_UDP ? 4 : 14;
	done = pkt->ip4 ? rewrite_plain4(skb, pkt, l3_off, l4_len) :
			  rewrite_plain6(skb, pkt, l3_off, l4_len);
	if (done)
		note_rewritten(pkt);
	return done;
}

/* Writes both addresses of the IP header, and its checksum. */
static __always_inline bool write_addrs(struct __sk_buff *skb,
					const struct packet *pkt)
{
	const struct tuple *to = &pkt->to;
	__u32 l3_off = pkt->l3_off;

	if (!pkt->ip4) {
		struct ip_addr both[2] = { to->src, to->dst };

		return !bpf_skb_store_bytes(
			skb, l3_off + offsetof(struct ipv6hdr, saddr), both,
			sizeof(both), 0);
	}
	__be32 both[2] = { to->src.word[3], to->dst.word[3] };

	return !bpf_l3_csum_replace(skb, l3_off + offsetof(struct iphdr, check),
				    0, addr_diff(&pkt->tuple, to), 0) &&
	       !bpf_skb_store_bytes(skb, l3_off + offsetof(struct iphdr, saddr),
				    both, sizeof(both), 0);
}

/* Corrects the checksum of a TCP or UDP header for addresses and ports. */
static __always_inline bool fix_l4_csum(struct __sk_buff *skb,
					const struct packet *pkt)
{
	bool udp = pkt->l4_proto == IPPROTO_UDP;
	__u32 off = pkt->l4_off + (udp ? UDP_CSUM_OFF : TCP_CSUM_OFF);
	__u64 flags = udp ? BPF_F_MARK_MANGLED_0 : 0;
	__u64 addr_flags = flags | BPF_F_PSEUDO_HDR;

	if (!pkt->ip4)
		addr_flags |= ip6_csum_flag;
	return !bpf_l4_csum_replace(skb, off, 0,
				    addr_diff(&pkt->tuple, &pkt->to),
				    addr_flags) &&
	       !bpf_l4_csum_replace(skb, off, ports_word(&pkt->tuple),
				    ports_word(&pkt->to), flags | 4);
}

/* Corrects the checksum at l4_off, of a packet that is no fragment. */
static __always_inline bool fix_sctp_csum(struct __sk_buff *skb,
					  const struct packet *pkt, __u32 diff)
{
	__u32 off = pkt->l4_off + SCTP_CSUM_OFF, csum;

	if (bpf_skb_load_bytes(skb, off, &csum, sizeof(csum)))
		return false;
	csum = sctp_csum(csum, diff, pkt->end - pkt->l4_off);
	return !bpf_skb_store_bytes(skb, off, &csum, sizeof(csum),
				    BPF_F_RECOMPUTE_CSUM);
}

/* Corrects the checksum of the transport header for addresses and ports. */
static __always_inline bool fix_csum(struct __sk_buff *skb,
				     const struct packet *pkt)
{
	__u32 diff = ports_word(&pkt->tuple) ^ ports_word(&pkt->to);

	if (pkt->l4_proto != IPPROTO_SCTP)
		return fix_l4_csum(skb, pkt);
	/* It goes over no addresses, but over all of the datagram. */
	if (diff && pkt->more_fragments) {
		refuse(DROP_FRAGMENT, 0);
		return false;
	}
	return fix_sctp_csum(skb, pkt, diff);
}

STEP bool rewrite_any(struct __sk_buff *skb, struct packet *pkt)
{
	struct ports ports;

	if (!pkt)
		return false;
	ports.src = pkt->to.src_port;
	ports.dst = pkt->to.dst_port;
	if (!pkt->fragment) {
		if (!fix_csum(skb, pkt))
			return false;
		if (bpf_skb_store_bytes(skb, pkt->l4_off, &ports, sizeof(ports),
					0))
			return false;
	}
	if (!write_addrs(skb, pkt))
		return false;
	note_rewritten(pkt);
	return true;
}

/* Makes a packet what it becomes; false if it cannot be done. */
static __always_inline bool rewrite(struct __sk_buff *skb, struct packet *pkt)
{
	return (pkt->plain && rewrite_plain(skb, pkt)) || rewrite_any(skb, pkt);
}

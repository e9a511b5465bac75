/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Rewriting: a packet becomes another, of which pkt->to is the tuple. This is one of the two
 * places where the families meet.
 *
 * A plain packet is written where it lies, without a call of the kernel. At each
 * hook one end of a packet becomes another: the destination on the way in, the source
 * on the way out, as tc/conntrack.h shows; both where that is repeated (tc/repeat.h). Both ports may change. The checksums of
 * all other packets go through the kernel's helpers, since only they know whether a device
 * is still to finish them.
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
#include "refuse.h"

static __always_inline void note_rewritten(struct packet *pkt)
{
	pkt->tuple = pkt->to;
	pkt->rewritten = true;
}

/* Writes a word, and adds to a one's complement sum what that changes. */
static __always_inline void write_word(__be32 *at, __be32 to, __u32 *sum)
{
	*sum = sum_replace(*sum, *at, to);
	*at = to;
}

/* Writes one address of IPv6. */
static __always_inline void write_addr6(struct in6_addr *at,
					const struct ip_addr *to, __u32 *sum)
{
	for (int i = 0; i < 4; i++)
		write_word(&at->in6_u.u6_addr32[i], to->word[i], sum);
}

/* Writes the end that changes, or both, and returns what that changes a sum by. */
static __always_inline __u32 write_end4(struct iphdr *ip,
					const struct packet *pkt, bool both)
{
	__u32 sum = 0;

	if (both || pkt->tuple.hook == HOOK_IN)
		write_word(&ip->daddr, pkt->to.dst.word[3], &sum);
	if (both || pkt->tuple.hook != HOOK_IN)
		write_word(&ip->saddr, pkt->to.src.word[3], &sum);
	ip->check = ~sum_fold(sum_add((__u16)~ip->check, sum));
	return sum;
}

static __always_inline __u32 write_end6(struct ipv6hdr *ip,
					const struct packet *pkt, bool both)
{
	__u32 sum = 0;

	if (both || pkt->tuple.hook == HOOK_IN)
		write_addr6(&ip->daddr, &pkt->to.dst, &sum);
	if (both || pkt->tuple.hook != HOOK_IN)
		write_addr6(&ip->saddr, &pkt->to.src, &sum);
	return sum;
}

/*
 * Writes the ports, and a transport checksum for them and for addresses that differ by
 * a sum. One that a device is still to finish is the sum of the addresses and of what
 * follows from them. Returns what all that changes a sum of the packet by.
 */
static __always_inline __u32 write_l4(struct ports *ports, __u16 *csum,
				      const struct packet *pkt, __u32 addrs,
				      __u32 summed)
{
	bool udp = pkt->l4_proto == IPPROTO_UDP;
	__u32 sum = 0;
	__u16 was = *csum, is;

	write_word((__be32 *)ports, ports_word(&pkt->to), &sum);
	if (udp && !was)
		return sum; /* it does without (RFC 768): what is partial is inside */
	if (summed == CHECKSUM_PARTIAL) {
		is = sum_fold(sum_add(was, addrs));
	} else {
		is = ~sum_fold(sum_add((__u16)~was, sum_add(addrs, sum)));
		if (udp && !is)
			is = 0xffff;
	}
	*csum = is;
	return sum_replace(sum, was, is);
}

/*
 * Tells the kernel what a sum of the packet changes by, if the device has made one
 * (CHECKSUM_COMPLETE), with which checksums are compared later. It begins with the IP
 * header. That of IPv4 adds up to what it did, since its own checksum makes up for
 * the address. IPv6 has none there, and the address counts.
 */
static __always_inline void note_change(struct __sk_buff *skb, __u32 summed,
					__u32 sum)
{
	if (summed == CHECKSUM_COMPLETE)
		bpf_csum_update(skb, sum);
}

/* Where the checksum is in a transport header that begins with these ports. */
static __always_inline __u16 *csum_at(void *ports, const struct packet *pkt)
{
	return ports +
	       (pkt->l4_proto == IPPROTO_UDP ? UDP_CSUM_OFF : TCP_CSUM_OFF);
}

static __always_inline bool rewrite_plain4(struct __sk_buff *skb,
					   const struct packet *pkt,
					   __u32 l3_off, __u32 summed,
					   bool both)
{
	void *data_end = (void *)(long)skb->data_end;
	struct plain_ip4 *h = (void *)(long)skb->data + l3_off;
	__u16 *csum = csum_at(&h->ports, pkt);
	__u32 addrs;

	if ((void *)(h + 1) > data_end || (void *)(csum + 1) > data_end)
		return false;
	addrs = write_end4(&h->ip, pkt, both);
	note_change(skb, summed, write_l4(&h->ports, csum, pkt, addrs, summed));
	return true;
}

static __always_inline bool rewrite_plain6(struct __sk_buff *skb,
					   const struct packet *pkt,
					   __u32 l3_off, __u32 summed,
					   bool both)
{
	void *data_end = (void *)(long)skb->data_end;
	struct plain_ip6 *h = (void *)(long)skb->data + l3_off;
	__u16 *csum = csum_at(&h->ports, pkt);
	__u32 addrs, sum;

	if ((void *)(h + 1) > data_end || (void *)(csum + 1) > data_end)
		return false;
	addrs = write_end6(&h->ip, pkt, both);
	sum = write_l4(&h->ports, csum, pkt, addrs, summed);
	note_change(skb, summed, sum_add(addrs, sum));
	return true;
}

/*
 * Makes a plain packet what it becomes; false if that is to be done otherwise, and nothing
 * was written.
 */
static __always_inline bool write_plain(struct __sk_buff *skb,
					struct packet *pkt, bool both)
{
	__u32 l3_off, summed;
	struct sk_buff *k;
	bool done;

	if (!bpf_cast_to_kern_ctx)
		return false;
	k = bpf_cast_to_kern_ctx(skb);
	summed = BPF_CORE_READ_BITFIELD(k, ip_summed);
	l3_off = pkt->l3_off ? ETH_HLEN : 0;
	done = pkt->ip4 ? rewrite_plain4(skb, pkt, l3_off, summed, both) :
			  rewrite_plain6(skb, pkt, l3_off, summed, both);
	if (done)
		note_rewritten(pkt);
	return done;
}

/* Writes the end that changes at a hook. */
GLOBAL_FUNC bool rewrite_plain(struct __sk_buff *skb, struct packet *pkt)
{
	return pkt && write_plain(skb, pkt, false);
}

/* Writes what changes at two hooks, of a packet that passes the node. */
static __always_inline bool rewrite_both_ends(struct __sk_buff *skb,
					      struct packet *pkt)
{
	return write_plain(skb, pkt, true);
}

/*
 * Writes both addresses of the IP header, and its checksum. Flags are of those of
 * IPv6: no transport checksum makes up for them in a sum of the packet where there
 * is none.
 */
static __always_inline bool write_addrs(struct __sk_buff *skb,
					const struct packet *pkt, __u64 flags)
{
	const struct tuple *to = &pkt->to;
	__u32 l3_off = pkt->l3_off;

	if (!pkt->ip4) {
		struct ip_addr both[2] = { to->src, to->dst };

		return !bpf_skb_store_bytes(
			skb, l3_off + offsetof(struct ipv6hdr, saddr), both,
			sizeof(both), flags);
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
		refuse_packet(pkt, DROP_FRAGMENT, 0);
		return false;
	}
	return fix_sctp_csum(skb, pkt, diff);
}

GLOBAL_FUNC bool rewrite_any(struct __sk_buff *skb, struct packet *pkt)
{
	struct ports ports;
	__u64 flags = 0;

	if (!pkt)
		return false;
	if (pkt->fragment || pkt->l4_proto == IPPROTO_SCTP)
		flags = BPF_F_RECOMPUTE_CSUM;
	ports.src = pkt->to.src_port;
	ports.dst = pkt->to.dst_port;
	if (!pkt->fragment) {
		if (!fix_csum(skb, pkt))
			return false;
		if (bpf_skb_store_bytes(skb, pkt->l4_off, &ports, sizeof(ports),
					flags))
			return false;
	}
	if (!write_addrs(skb, pkt, flags))
		return false;
	note_rewritten(pkt);
	return true;
}

/* Makes a packet what it becomes; false if it cannot be done. */
static __always_inline bool rewrite(struct __sk_buff *skb, struct packet *pkt)
{
	return (pkt->plain && rewrite_plain(skb, pkt)) || rewrite_any(skb, pkt);
}
